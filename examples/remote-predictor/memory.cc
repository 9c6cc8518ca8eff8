#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

std::unique_ptr<SharedMemory> SharedMemory::Attach(const mlmodelscope::predictor::v1::SharedFile& offered) {
  // a plain name of the right kind: no client can make this program write to a file elsewhere
  const std::string prefix = "mlmodelscope-";
  if (offered.name().compare(0, prefix.size(), prefix) != 0 || offered.name().find('/') != std::string::npos ||
      offered.token().size() < 32 || offered.size() < offered.token().size())
    return nullptr;
  const int file = open(("/dev/shm/" + offered.name()).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return nullptr;
  struct stat facts;
  void* start = MAP_FAILED;
  if (fstat(file, &facts) == 0 && static_cast<uint64_t>(facts.st_size) == offered.size())
    start = mmap(nullptr, offered.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (start == MAP_FAILED) return nullptr;
  std::unique_ptr<SharedMemory> memory(new SharedMemory(static_cast<char*>(start), offered.size()));
  // the token tells the client's file from one of the same name on another machine
  return std::memcmp(start, offered.token().data(), offered.token().size()) == 0 ? std::move(memory) : nullptr;
}

SharedMemory::~SharedMemory() { munmap(start_, size_); }

char* SharedMemory::At(uint64_t offset, uint64_t size) const {
  return offset <= size_ && size <= size_ - offset ? start_ + offset : nullptr;
}

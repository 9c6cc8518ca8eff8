// The client's shared file, as this program sees it.
#pragma once

#include <memory>

#include "predictor.pb.h"

class SharedMemory {
 public:
  // The file that a client offers, or nothing where this machine does not have it: then tensors come in messages.
  static std::unique_ptr<SharedMemory> Attach(const mlmodelscope::predictor::v1::SharedFile& offered);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // The start of a region, or nullptr where it does not lie in the file.
  char* At(uint64_t offset, uint64_t size) const;

 private:
  SharedMemory(char* start, uint64_t size) : start_(start), size_(size) {}
  char* start_;
  uint64_t size_;
};

#include "device.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace {

constexpr int64_t kStartCycles = 40;
constexpr int64_t kMostWeights = 1 << 24;

using Lines = std::map<std::string, std::istringstream>;

std::istringstream& Need(Lines& lines, const std::string& keyword) {
  auto found = lines.find(keyword);
  if (found == lines.end()) throw BadBitfile("the bitfile has no line '" + keyword + "'");
  return found->second;
}

int64_t Positive(Lines& lines, const std::string& keyword, int64_t most) {
  int64_t value = 0;
  if (!(Need(lines, keyword) >> value) || value < 1 || value > most)
    throw BadBitfile("'" + keyword + "' must be a number from 1 to " + std::to_string(most));
  return value;
}

std::vector<float> Numbers(Lines& lines, const std::string& keyword, int64_t count) {
  std::vector<float> found;
  float value = 0;
  while (Need(lines, keyword) >> value) found.push_back(value);
  if (static_cast<int64_t>(found.size()) != count || !Need(lines, keyword).eof())
    throw BadBitfile("'" + keyword + "' takes " + std::to_string(count) + " numbers, " +
                     std::to_string(found.size()) + " can be read");
  return found;
}

}  // namespace

Device Device::Configure(const std::string& text) {
  std::istringstream file(text);
  std::string line;
  if (!std::getline(file, line) || line != "TOYFPGA 1") throw BadBitfile("the first line is not 'TOYFPGA 1'");
  Lines lines;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string keyword;
    if (words >> keyword) lines[keyword] = std::move(words);
  }
  Device device;
  device.clock_mhz_ = Positive(lines, "clock_mhz", 100000);
  device.lanes_ = Positive(lines, "lanes", 1 << 20);
  std::istringstream& input = Need(lines, "input");
  input >> device.input_name_;
  for (int64_t size = 0; input >> size;) {
    if (size < 1 || size > kMostWeights) throw BadBitfile("'input' has a size that cannot be");
    device.input_shape_.push_back(size);
  }
  std::istringstream& output = Need(lines, "output");
  device.output_names_.resize(2);
  int64_t outputs = 0;
  output >> device.output_names_[0] >> device.output_names_[1] >> outputs;
  if (device.input_shape_.empty() || device.input_shape_.size() > 8 || outputs < 1 || outputs > kMostWeights)
    throw BadBitfile("'input' takes a name and a shape, 'output' two names and a length");
  // before each product, so that it cannot overflow
  int64_t weights = outputs;
  for (int64_t size : device.input_shape_) {
    if (weights > kMostWeights / size) throw BadBitfile("the device has room for 16 million weights only");
    weights *= size;
  }
  device.weights_ = Numbers(lines, "weights", weights);
  device.bias_ = Numbers(lines, "bias", outputs);
  return device;
}

int64_t Device::input_size() const {
  int64_t product = 1;
  for (int64_t size : input_shape_) product *= size;
  return product;
}

void Device::Run(const float* x, int64_t rows, float* y, float* z) const {
  const int64_t inputs = input_size(), outputs = output_size();
  for (int64_t row = 0; row < rows; ++row) {
    float* sums = y + row * outputs;
    std::copy(bias_.begin(), bias_.end(), sums);
    for (int64_t i = 0; i < inputs; ++i)
      for (int64_t o = 0; o < outputs; ++o) sums[o] += x[row * inputs + i] * weights_[i * outputs + o];
    for (int64_t o = 0; o < outputs; ++o) z[row * outputs + o] = std::max(sums[o], 0.0f);
  }
}

int64_t Device::DurationNs(int64_t rows) const {
  const int64_t products = input_size() * output_size();
  const int64_t cycles = kStartCycles + rows * ((products + lanes_ - 1) / lanes_);
  return cycles * 1000 / clock_mhz_;
}

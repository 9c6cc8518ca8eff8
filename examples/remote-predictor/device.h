// A device that is not there: one matrix unit, whose bitfile holds its weights and its clock.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// What a bitfile says that cannot be. The message names the line's keyword.
struct BadBitfile : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// y = x w + b and z = max(y, 0) for rows x. A bitfile is text, a keyword and its values in each line:
//
//     TOYFPGA 1
//     clock_mhz 100        cycles per microsecond
//     lanes 8              multiplications per cycle
//     input x 4            name and shape of one row
//     output y z 3         names of both outputs, and their length
//     weights ...          input size x output size numbers, row by row
//     bias ...             output size numbers
class Device {
 public:
  // Reads a bitfile. Throws BadBitfile.
  static Device Configure(const std::string& text);

  // Runs `rows` rows; y and z have rows x output_size() elements.
  void Run(const float* x, int64_t rows, float* y, float* z) const;

  // What the same run takes on the device: a fixed start, then so many cycles a row.
  int64_t DurationNs(int64_t rows) const;

  const std::string& input_name() const { return input_name_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  const std::vector<int64_t>& input_shape() const { return input_shape_; }
  int64_t input_size() const;
  int64_t output_size() const { return static_cast<int64_t>(bias_.size()); }

 private:
  std::string input_name_;
  std::vector<std::string> output_names_;
  std::vector<int64_t> input_shape_;
  std::vector<float> weights_, bias_;
  int64_t clock_mhz_ = 0, lanes_ = 0;
};

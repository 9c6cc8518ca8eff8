// Exotic hardware as a framework of MLModelScope: a program that serves the predictor API for a device of its own.
//
//     toy-fpga unix:/tmp/fpga.sock        then: mlmodelscope evaluate MODEL --framework remote@unix:/tmp/fpga.sock
//
// ModelLoad reads a bitfile onto the device, Predict runs it and says how long the device would have taken. There is one
// device: the newest bitfile is on it, and older handles are told so.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <optional>

#include "device.h"
#include "memory.h"
#include "predictor.grpc.pb.h"

namespace rpc = mlmodelscope::predictor::v1;
using grpc::ServerContext;
using grpc::Status;

namespace {

constexpr int kMostMessageBytes = 1 << 30;
constexpr uint64_t kAlignment = 64;

void Fail(rpc::Fault* fault, const std::string& code, const std::string& message, const std::string& hint = "",
          const std::string& fields_json = "") {
  fault->set_code(code);
  fault->set_message(message);
  fault->set_hint(hint);
  fault->set_fields_json(fields_json);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + '"';
}

template <typename Values>
std::string Listed(const Values& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

class ToyFpga final : public rpc::Predictor::Service {
 public:
  Status ModelLoad(ServerContext*, const rpc::OpenRequest* request, rpc::ModelHandle* handle) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    device_.reset();
    shared_.reset();
    outputs_.clear();
    std::string bitfile;
    if (!Read(*request, &bitfile, handle->mutable_fault())) return Status::OK;
    try {
      device_ = Device::Configure(bitfile);
    } catch (const BadBitfile& error) {
      Fail(handle->mutable_fault(), "model_format", request->graph_path() + " is no bitfile: " + error.what(),
           "see examples/remote-predictor/device.h", "{\"path\": " + Quoted(request->graph_path()) + "}");
      return Status::OK;
    }
    if (!Choose(*request, handle->mutable_fault())) {
      device_.reset();
      return Status::OK;
    }
    handle->clear_fault();
    handle->set_id(std::to_string(++loads_));
    if (request->has_shared()) shared_ = SharedMemory::Attach(request->shared());
    handle->set_has_mapped(shared_ != nullptr);
    handle->set_is_simulated(true);
    Describe(handle->mutable_facts());
    return Status::OK;
  }

  Status ModelUnload(ServerContext*, const rpc::ModelHandle* handle, rpc::CloseResponse*) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (handle->id() == std::to_string(loads_)) {
      device_.reset();
      shared_.reset();
    }
    return Status::OK;
  }

  Status Predict(ServerContext*, const rpc::PredictRequest* request, rpc::PredictionResponse* answer) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!device_ || request->id() != std::to_string(loads_)) {
      Fail(answer->mutable_fault(), "predictor_failed", "no bitfile of this handle is on the device",
           "call ModelLoad; another client may have loaded its own bitfile meanwhile");
      return Status::OK;
    }
    int64_t rows = 0;
    const float* x = Input(*request, &rows, answer->mutable_fault());
    if (x == nullptr) return Status::OK;
    answer->clear_fault();
    const size_t count = rows * device_->output_size();
    std::vector<float> y(count), z(count);
    device_->Run(x, rows, y.data(), z.data());
    answer->set_simulated_ns(device_->DurationNs(rows));
    uint64_t used = 0;
    for (const int index : outputs_) Output(*request, index == 0 ? y : z, rows, &used, answer->add_outputs());
    return Status::OK;
  }

 private:
  // The bitfile itself, sent or named by its path here.
  static bool Read(const rpc::OpenRequest& request, std::string* bitfile, rpc::Fault* fault) {
    if (!request.options_json().empty() && request.options_json() != "{}") {
      Fail(fault, "predictor_failed", "toy-fpga has no options, but was given " + request.options_json(),
           "leave the options out");
      return false;
    }
    if (request.threads() < 1) {
      Fail(fault, "predictor_failed", "threads must be 1 or more");
      return false;
    }
    if (request.has_graph()) {
      *bitfile = request.graph();
      return true;
    }
    std::ifstream file(request.graph_path(), std::ios::binary);
    if (!file) {
      Fail(fault, "model_format", "no bitfile can be read at " + request.graph_path(),
           "the path is looked for on the device's machine; option upload: true sends the file",
           "{\"path\": " + Quoted(request.graph_path()) + "}");
      return false;
    }
    bitfile->assign(std::istreambuf_iterator<char>(file), {});
    return true;
  }

  // Whether the layers asked for are on the device, and in which order the outputs are wanted.
  bool Choose(const rpc::OpenRequest& request, rpc::Fault* fault) {
    std::vector<int> inputs;
    if (!Positions("input", request.inputs(), {device_->input_name()}, &inputs, fault) ||
        !Positions("output", request.outputs(), device_->output_names(), &outputs_, fault))
      return false;
    for (const auto& layer : request.inputs())
      if (!layer.element_type().empty() && layer.element_type() != "float32") {
        Fail(fault, "shape_mismatch", "the device takes float32, not " + layer.element_type(),
             "set the input's element_type to float32",
             "{\"expected\": \"float32\", \"got\": " + Quoted(layer.element_type()) + "}");
        return false;
      }
    return true;
  }

  static bool Positions(const std::string& kind, const google::protobuf::RepeatedPtrField<rpc::LayerChoice>& asked,
                        const std::vector<std::string>& names, std::vector<int>* found, rpc::Fault* fault) {
    for (int place = 0; place < asked.size(); ++place) {
      const rpc::LayerChoice& layer = asked[place];
      int position = layer.has_index() ? layer.index() : place;
      if (layer.has_name()) position = std::find(names.begin(), names.end(), layer.name()) - names.begin();
      if (position < 0 || position >= static_cast<int>(names.size())) {
        std::string listed, quoted;
        for (const auto& name : names) {
          listed += (listed.empty() ? "" : ", ") + name;
          quoted += (quoted.empty() ? "" : ", ") + Quoted(name);
        }
        const std::string wanted = layer.has_name() ? layer.name() : std::to_string(position);
        Fail(fault, "predictor_failed", "the bitfile has no " + kind + " layer " + wanted,
             kind + " layers of the bitfile: " + listed, "{\"known\": [" + quoted + "]}");
        return false;
      }
      found->push_back(position);
    }
    for (size_t i = 0; asked.empty() && i < names.size(); ++i) found->push_back(i);
    return true;
  }

  void Describe(rpc::Facts* facts) const {
    facts->set_framework("toy-fpga");
    facts->set_version("1.0");
    facts->set_threads(1);
    facts->set_provider("matrix unit");
    facts->set_device("simulated");
    facts->set_library("none");
    facts->set_optimization("none");
    facts->set_precision("float32");
    rpc::LayerFact* input = facts->add_inputs();
    input->set_name(device_->input_name());
    input->set_element_type("float32");
    input->add_shape(-1);
    for (const int64_t size : device_->input_shape()) input->add_shape(size);
    for (const int index : outputs_) {
      rpc::LayerFact* output = facts->add_outputs();
      output->set_name(device_->output_names()[index]);
      output->set_element_type("float32");
      output->add_shape(-1);
      output->add_shape(device_->output_size());
    }
  }

  // The rows of the one input, or nullptr and the reason.
  const float* Input(const rpc::PredictRequest& request, int64_t* rows, rpc::Fault* fault) const {
    if (request.inputs_size() != 1) {
      Fail(fault, "shape_mismatch", "the device takes 1 input, " + std::to_string(request.inputs_size()) + " were given",
           "", "{\"expected\": 1, \"got\": " + std::to_string(request.inputs_size()) + "}");
      return nullptr;
    }
    const rpc::Tensor& tensor = request.inputs(0);
    const std::vector<int64_t>& row = device_->input_shape();
    const bool fits = tensor.element_type() == "float32" && tensor.shape_size() == static_cast<int>(row.size()) + 1 &&
                      tensor.shape(0) >= 0 && std::equal(row.begin(), row.end(), tensor.shape().begin() + 1);
    const char* start = tensor.has_region() ? nullptr : tensor.data().data();
    uint64_t size = tensor.data().size();
    if (tensor.has_region() && shared_) {
      start = shared_->At(tensor.region().offset(), tensor.region().size());
      size = tensor.region().size();
    }
    const uint64_t row_bytes = device_->input_size() * sizeof(float);
    if (!fits || start == nullptr || size % row_bytes != 0 ||
        size / row_bytes != static_cast<uint64_t>(tensor.shape(0))) {
      Fail(fault, "shape_mismatch",
           "the device takes float32 [any, ...] of row shape " + Listed(row) + ", not " + tensor.element_type() + " " +
               Listed(tensor.shape()),
           "", "{\"expected\": " + Listed(row) + ", \"got\": " + Listed(tensor.shape()) + "}");
      return nullptr;
    }
    *rows = tensor.shape(0);
    return reinterpret_cast<const float*>(start);
  }

  // Into the memory that the client set aside, or into the message where it does not fit.
  void Output(const rpc::PredictRequest& request, const std::vector<float>& values, int64_t rows, uint64_t* used,
              rpc::Tensor* tensor) const {
    tensor->set_element_type("float32");
    tensor->add_shape(rows);
    tensor->add_shape(device_->output_size());
    const uint64_t size = values.size() * sizeof(float);
    char* place = nullptr;
    if (shared_ && request.has_answer() && *used + size <= request.answer().size())
      place = shared_->At(request.answer().offset() + *used, size);
    if (place == nullptr) {
      tensor->set_data(values.data(), size);
      return;
    }
    std::memcpy(place, values.data(), size);
    tensor->mutable_region()->set_offset(request.answer().offset() + *used);
    tensor->mutable_region()->set_size(size);
    *used += (size + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::mutex mutex_;
  std::optional<Device> device_;
  std::unique_ptr<SharedMemory> shared_;
  std::vector<int> outputs_;
  int64_t loads_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: toy-fpga unix:PATH|HOST:PORT\n";
    return 2;
  }
  // every thread inherits the mask, so that the signals wait for the one that asks for them
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);

  ToyFpga service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.SetMaxSendMessageSize(kMostMessageBytes);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) {
    std::cerr << "toy-fpga: cannot listen at " << argv[1] << "\n";
    return 3;
  }
  std::cout << "toy-fpga is ready at " << argv[1] << std::endl;
  int received = 0;
  sigwait(&ending, &received);
  server->Shutdown();
  return 0;
}

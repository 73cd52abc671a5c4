#pragma once

#include <torch/torch.h>

#include <string>

#include "app.h"
#include "prenorm/error.h"

/// --device and --threads, of every app that computes.
struct Machine {
  std::string device = "auto";
  int threads = 0;

  void add_options(CLI::App& app) {
    app.add_option("--device", device, "auto, cpu, cuda or cuda:N; auto takes a GPU where there is one")
        ->check(CLI::Validator(
            [](const std::string& name) {
              const bool index = name.starts_with("cuda:") && name.size() > 5 && name.size() < 8 &&
                                 name.find_first_not_of("0123456789", 5) == std::string::npos;
              return index || name == "auto" || name == "cpu" || name == "cuda"
                         ? ""
                         : name + " is not auto, cpu, cuda or cuda:N";
            },
            ""))
        ->group("Machine");
    app.add_option("--threads", threads, "CPU threads; 0: one per core")->check(CLI::Range(0, 1024))->group("Machine");
  }

  /// Sets the threads; throws Error when there is no such device.
  torch::Device pick() const {
    if (threads > 0) torch::set_num_threads(threads);
    const auto gpus = static_cast<int>(torch::cuda::device_count());
    if (device == "auto") return gpus > 0 ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
    if (device == "cpu") return torch::kCPU;
    const torch::Device picked(device == "cuda" ? "cuda:0" : device);
    prenorm::require(picked.index() < gpus, "--device ", device, ": this machine has ",
                     gpus == 0 ? "no CUDA device that this LibTorch can use; use --device cpu"
                               : "CUDA devices 0 to " + std::to_string(gpus - 1));
    return picked;
  }
};

# Finds LibTorch for the library and for the programs that link it, and says what to do when it cannot be used.
# TorchConfig.cmake stops in the middle of a CUDA LibTorch without nvcc, so look before it runs.
set(prenorm_torch_minimum 2.7)

if(NOT TARGET torch)
  find_file(PRENORM_TORCH_CONFIG TorchConfig.cmake PATHS "${Torch_DIR}" "$ENV{Torch_DIR}"
            PATH_SUFFIXES share/cmake/Torch NO_CACHE)
  if(NOT PRENORM_TORCH_CONFIG)
    set(hint "")
    foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
      if(NOT IS_ABSOLUTE "${prefix}")
        string(APPEND hint "\nCMAKE_PREFIX_PATH holds the relative path '${prefix}': give an absolute one.")
      endif()
    endforeach()
    message(FATAL_ERROR
      "LibTorch was not found.${hint}\n"
      "Say where it is: -DCMAKE_PREFIX_PATH=/absolute/path/to/libtorch, or, for the one inside a Python torch,\n"
      "  -DCMAKE_PREFIX_PATH=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')\n"
      "Without LibTorch only the component 'params' can be had (-DPRENORM_TORCH=OFF builds it alone).")
  endif()

  get_filename_component(torch_prefix "${PRENORM_TORCH_CONFIG}/../../../.." ABSOLUTE)
  file(GLOB torch_cuda "${torch_prefix}/lib/*torch_cuda.*")
  if(torch_cuda)
    find_program(PRENORM_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH "${CUDAToolkit_ROOT}"
                 PATHS /usr/local/cuda PATH_SUFFIXES bin NO_CACHE)
    if(NOT PRENORM_NVCC AND NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR
        "The LibTorch at ${torch_prefix} is a CUDA build, and its CMake files need nvcc, which is not here.\n"
        "Two ways out: use a CPU build (pip install torch --index-url https://download.pytorch.org/whl/cpu, or the\n"
        "CPU LibTorch archive), or install the CUDA toolkit and put nvcc on PATH (or set CUDAToolkit_ROOT).")
    endif()
  endif()

  if(NOT Torch_DIR)
    get_filename_component(Torch_DIR "${PRENORM_TORCH_CONFIG}" DIRECTORY)
  endif()
  find_package(Torch ${prenorm_torch_minimum} REQUIRED)
endif()

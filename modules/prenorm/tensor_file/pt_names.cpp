#include "prenorm/tensor_file/pt_names.h"

#include <algorithm>
#include <array>
#include <string>

namespace prenorm {
namespace {

constexpr std::array kPtDtypes{
    PtDtype{Dtype::BOOL, "torch.bool", "torch.BoolStorage"},
    PtDtype{Dtype::U8, "torch.uint8", "torch.ByteStorage"},
    PtDtype{Dtype::I8, "torch.int8", "torch.CharStorage"},
    PtDtype{Dtype::F8_E5M2, "torch.float8_e5m2", ""},
    PtDtype{Dtype::F8_E4M3, "torch.float8_e4m3fn", ""},
    PtDtype{Dtype::F8_E8M0, "torch.float8_e8m0fnu", ""},
    PtDtype{Dtype::F8_E4M3FNUZ, "torch.float8_e4m3fnuz", ""},
    PtDtype{Dtype::F8_E5M2FNUZ, "torch.float8_e5m2fnuz", ""},
    PtDtype{Dtype::I16, "torch.int16", "torch.ShortStorage"},
    PtDtype{Dtype::U16, "torch.uint16", ""},
    PtDtype{Dtype::F16, "torch.float16", "torch.HalfStorage"},
    PtDtype{Dtype::BF16, "torch.bfloat16", "torch.BFloat16Storage"},
    PtDtype{Dtype::I32, "torch.int32", "torch.IntStorage"},
    PtDtype{Dtype::U32, "torch.uint32", ""},
    PtDtype{Dtype::F32, "torch.float32", "torch.FloatStorage"},
    PtDtype{Dtype::C64, "torch.complex64", "torch.ComplexFloatStorage"},
    PtDtype{Dtype::F64, "torch.float64", "torch.DoubleStorage"},
    PtDtype{Dtype::I64, "torch.int64", "torch.LongStorage"},
    PtDtype{Dtype::U64, "torch.uint64", ""},
};

// Types that may stand in a file, in a tensor that is refused by its name or in something that is left out.
constexpr std::array<std::string_view, 13> kOtherTypes{"torch.UntypedStorage",
                                                       "torch.ComplexDoubleStorage",
                                                       "torch.QInt8Storage",
                                                       "torch.QUInt8Storage",
                                                       "torch.QInt32Storage",
                                                       "torch.complex128",
                                                       "torch.complex32",
                                                       "torch.qint8",
                                                       "torch.quint8",
                                                       "torch.qint32",
                                                       "torch.float4_e2m1fn_x2",
                                                       "torch.storage.UntypedStorage",
                                                       "torch.storage.TypedStorage"};

constexpr std::array<std::string_view, 20> kOthers{
    "collections.OrderedDict", "collections.defaultdict", "collections.Counter", "_codecs.encode", "torch.Size",
    "torch.device", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.serialization._get_layout",
    "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    // Scalars of NumPy, as people log their best score.
    "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype",
    // TorchScript
    "torch.jit._pickle.restore_type_tag", "torch.jit._pickle.build_tensorlist"};

constexpr std::array<std::string_view, 9> kBuiltins{"set",  "frozenset", "bytearray", "complex", "dict",
                                                    "list", "int",       "float",     "slice"};

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const PtDtype* pt_dtype(Dtype dtype) {
  const auto* row = std::find_if(kPtDtypes.begin(), kPtDtypes.end(), [&](const auto& r) { return r.dtype == dtype; });
  return row == kPtDtypes.end() ? nullptr : row;
}

std::optional<Dtype> find_pt_dtype(std::string_view name) {
  for (const PtDtype& row : kPtDtypes) {
    if (!name.empty() && (row.name == name || row.storage == name)) return row.dtype;
  }
  return std::nullopt;
}

bool pt_global_known(std::string_view name) {
  for (const std::string_view module : {"builtins.", "__builtin__."}) {
    if (name.starts_with(module)) return contains(kBuiltins, name.substr(module.size()));
  }
  for (const std::string_view list : {"int", "double", "bool"}) {
    if (name == "torch.jit._pickle.build_" + std::string(list) + "list") return true;
  }
  return find_pt_dtype(name) || contains(kOtherTypes, name) || contains(kOthers, name) ||
         name.starts_with("__torch__.");
}

}  // namespace prenorm

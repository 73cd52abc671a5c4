#pragma once

// Catch2 2 (Debian 12) and 3 (newer systems) through one name. Include LibTorch before it: LibTorch redefines CHECK.
#ifdef CHECK
#undef CHECK
#endif
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

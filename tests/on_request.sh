# The checks that are run on request; ./dev sources this file.

# What no test may depend on: the kind of CPU, load, order, luck.
test_everywhere() {
  make_venv all
  build release
  local burners=() setting core
  for setting in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2; do
    say "all tests with $setting"
    env "$setting" ctest --preset release -j "$(nproc)"
  done
  say "all tests three times, in any order, while every core is busy with something else"
  for ((core = 0; core < $(nproc); ++core)); do
    (while :; do :; done) &
    burners+=($!)
  done
  trap 'kill "${burners[@]}"' EXIT
  ctest --preset release -j "$(nproc)" --schedule-random --repeat until-fail:3
}

# The wheel for aarch64 has the headers of a CPU build and no gigabytes of CUDA; that they are another machine's does
# not matter while nothing is linked.
test_headers() {
  local folder=$PWD/build/headers sources file
  need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv catch2
  if [ ! -d "$folder/torch/include" ]; then
    [ -x "$VENV/bin/pip" ] || python3 -m venv "$VENV"
    say "downloading the headers of LibTorch $TORCH_MINIMUM (about 100 MB)"
    "$VENV/bin/pip" --disable-pip-version-check download --no-deps --only-binary=:all: --python-version 3.11 \
      --platform manylinux_2_28_aarch64 --progress-bar off -d "$folder" "torch==$TORCH_MINIMUM.0" >&2
    python3 - "$folder" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(folder.glob("torch-*.whl"))) as wheel:
    wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("torch/include/")])
PYTHON
  fi
  # One unit for all sources but those that are programs.
  mapfile -t sources < <(git ls-files 'modules/*.cpp' 'apps/*.cpp' 'tests/*.cpp')
  check_headers() {
    printf '#include "%s"\n' "${@/#/$PWD/}" |
      "${CXX:-g++}" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -x c++ - -Imodules -Iapps -Itests \
        -isystem "$folder/torch/include" -isystem "$folder/torch/include/torch/csrc/api/include" \
        -DPRENORM_TEST_DATA='""' -DPRENORM_VERSION='""'
  }
  local programs=() parts=()
  for file in "${sources[@]}"; do
    if [[ $file = tests/package/* ]] || grep -q '^int main(' "$file"; then programs+=("$file"); else parts+=("$file"); fi
  done
  say "compiling ${#parts[@]} sources together"
  check_headers "${parts[@]}"
  for file in "${programs[@]}"; do
    say "compiling $file"
    check_headers "$file"
  done
  say "all ${#sources[@]} sources compile against the headers of LibTorch $TORCH_MINIMUM"
}

# Mounts are made in a namespace of their own, so that none is left behind, whatever happens. What apt and pip are told
# on this machine goes along, folders of wheels too, and $LIBTORCH where the suite's Python has no wheel.
test_fresh() {
  local suite=${1:-bookworm} root
  root=$PWD/build/fresh-$suite
  [ "$(id -u)" -eq 0 ] || die "\`./dev test fresh\` makes a root file system: run it as root"
  need_packages debootstrap git
  rm -rf "$root"
  mkdir -p build
  say "installing Debian's $suite into $root"
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" >build/fresh.log || die "see build/fresh.log"
  git clone -q . "$root/root/prenorm"  # what is committed
  (cd / && shopt -s nullglob && cp -r --parents etc/resolv.conf etc/hosts etc/ssl/certs/ca-certificates.crt \
    etc/pip.con[f] etc/xdg/pi[p] etc/apt/apt.conf.d/99* "$root")
  unshare --mount --propagation private bash -euo pipefail -s -- "$root" "${LIBTORCH:-}" <<'INSIDE'
root=$1 libtorch=$2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for folder in ${libtorch:+"${libtorch%/share/cmake}"} $(ls -d /opt/wheels /opt/pypi* 2>/dev/null); do
  mkdir -p "$root$folder"
  mount --bind -o ro "$folder" "$root$folder"
done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp LIBTORCH=$libtorch
exec chroot "$root" bash -euo pipefail -c '
  cd /root/prenorm
  for command in "params --d-model 512 --heads 8 --layers 1" train test; do
    echo "dev: fresh: ./dev $command, after $SECONDS s" >&2
    ./dev $command
  done
  echo "dev: fresh: all is well after $SECONDS s" >&2' </dev/null
INSIDE
}

# The fuzzers side by side, one for each reader that tests/fuzz.cpp lists. What they learn stays in build/fuzz/corpus.
fuzz() {
  local minutes=${1:-5} folder reader status=0
  local -A running
  [[ $minutes =~ ^[1-9][0-9]{0,4}$ ]] || die "fuzz takes a number of minutes, not '$minutes'"
  need_packages clang libclang-rt-dev
  build fuzz fuzz
  mkdir -p build/fuzz/findings
  for folder in tests/data/fuzz/*; do
    reader=${folder##*/}
    mkdir -p "build/fuzz/corpus/$reader"
    PRENORM_FUZZ_READER=$reader ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 TMPDIR=/dev/shm build/fuzz/tests/fuzz \
      -max_total_time=$((60 * minutes)) -timeout=20 -malloc_limit_mb=512 -rss_limit_mb=2048 -close_fd_mask=1 \
      -artifact_prefix="build/fuzz/findings/$reader-" "build/fuzz/corpus/$reader" "$folder" &>"build/fuzz/$reader.log" &
    running[$reader]=$!
  done
  say "fuzzing ${!running[*]}: $minutes min"
  for reader in "${!running[@]}"; do
    if wait "${running[$reader]}"; then
      say "$reader: $(fuzz_runs "$reader") runs, nothing found"
    else
      say "$reader: a finding after $(fuzz_runs "$reader") runs: build/fuzz/$reader.log names the input"
      status=1
    fi
  done
  return $status
}

fuzz_runs() {
  sed -nE 's/^#([0-9]+).*/\1/p' "build/fuzz/$1.log" | tail -1
}

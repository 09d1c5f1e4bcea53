# What heed needs of Debian and of PyPI, and how it is installed. Read by ./dev.

# What Debian 12 must provide; python3-venv brings Python and pip, python3-dev the headers of the package.
build_packages=(g++ cmake ninja-build pkg-config ccache libhwy-dev libcli11-dev nlohmann-json3-dev
                libpng-dev libzip-dev libgtest-dev python3-venv python3-dev)
tidy_packages=(clang-format-14 clang-tidy-14)   # pinned: another version formats differently
test_packages=(git locales)                    # seeded faults are patches; a locale needs a character map
peers_packages=(chromium fonts-dejavu-core)    # pages are tested in a browser
clang_packages=(clang-14 libclang-rt-14-dev)    # 16 breaks off compiling the kernels
coverage_packages=("${clang_packages[@]}" llvm-14)
neon_packages=(g++-aarch64-linux-gnu qemu-user)
arm64_packages=(libhwy-dev libhwy1 libgtest-dev)

# install_packages names..: asks dpkg what is there, and apt only for what is not.
install_packages() {
  local package missing=() root=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is no Debian; what it needs there is called: $*"
    return
  fi
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      say "packages are missing; as root, run this line, then $0 again:" >&2
      echo "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 3
    fi
    root=(sudo)
  fi
  say "installing ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  "${root[@]}" "${apt[@]}" update || say "apt-get update had trouble; going on with the lists there are"
  if ! "${root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; then
    say "apt-get could not install ${missing[*]}" >&2
    exit 3
  fi
}

# python_packages folder requirements [needed]: a virtual environment that is touched only when the
# requirements, Python or the folder's place changed. With `needed`, a package, it is enough if that
# one can be had, and the others are installed as far as they can be.
python_packages() {
  local folder=$1 requirements=$2 needed=${3:-} python=python3 stamp package
  [[ ! -x /usr/bin/python3 ]] || python=/usr/bin/python3   # the one that python3-venv belongs to
  stamp="$(sha256sum <"$requirements") $("$python" --version) $PWD/$folder"
  [[ ! -f $folder/stamp || $(<"$folder/stamp") != "$stamp" ]] || return 0
  say "installing Python packages of $requirements into $folder"
  local pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
  if ! "$python" -m venv --clear "$folder" || ! "${pip[@]}" -r "$requirements"; then
    say "pip could not install what $requirements names" >&2
    [[ -n $needed ]] || exit 3
    while read -r package; do
      "${pip[@]}" "$package" || say "going on without $package; rm -r $folder to try again" >&2
    done <"$requirements"
    "$folder/bin/python" -c "import $needed" || exit 3
  fi
  echo "$stamp" >"$folder/stamp"
}

# arm64_root folder: the arm64 packages, unpacked there. Their lists are kept apart from the system's,
# which learns of no other architecture.
arm64_root() {
  local folder=$1 apt=$PWD/$1.apt deb
  [[ ! -f $folder/stamp || $(<"$folder/stamp") != "${arm64_packages[*]}" ]] || return 0
  say "fetching ${arm64_packages[*]} of arm64 into $folder"
  rm -rf "$folder" "$apt"
  mkdir -p "$folder" "$apt/lists/partial" "$apt/archives/partial"
  : >"$apt/status"
  local get=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt"
             -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o APT::Sandbox::User=root)
  "${get[@]}" update || say "apt-get update had trouble; going on with the lists there are"
  if ! (cd "$apt" && "${get[@]}" download "${arm64_packages[@]}"); then
    say "apt-get could not fetch ${arm64_packages[*]} of arm64" >&2
    exit 3
  fi
  for deb in "$apt"/*.deb; do dpkg-deb -x "$deb" "$folder"; done
  rm -r "$apt"
  echo "${arm64_packages[*]}" >"$folder/stamp"
}

setup() {
  install_packages "${build_packages[@]}"
  python_packages .venv tests/requirements.txt
}

test_setup() {
  install_packages "${build_packages[@]}" "${test_packages[@]}"   # at once, so that one line tells all
  setup
}

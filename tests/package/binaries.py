"""What is true of the files that are installed, read with binutils.

    python3 tests/package/binaries.py exports LIBRARY.so LIST [--write]
    python3 tests/package/binaries.py targets LIBRARY.a|PROGRAM..
    python3 tests/package/binaries.py hardening PROGRAM|SHARED_LIBRARY
    python3 tests/package/binaries.py imports PROGRAM|SHARED_LIBRARY..
    python3 tests/package/binaries.py manners SHARED_LIBRARY..

Prints what is wrong, one line each, and exits with 1 if anything is.
"""

import argparse
import pathlib
import re
import subprocess
import sys

# Mangled names inside a namespace of ours that one instruction set owns: N_AVX2, N_AVX3. Highway's own
# functions have such namespaces too, and are inlined into ours.
OWNED = re.compile(r"(4heed7kernels|3hwy)6N_AVX[23]")

# Of these, and of the loops below, those that a CPU without AVX-512 runs.
OF_AVX2 = re.compile(r"(?:4heed7kernels|3hwy)6N_AVX2|\d+avx2_loopEl")

# The program's own loops, which tell what each instruction set can do at most (cli/peak.cc).
LOOPS = re.compile(r"_ZN4heed3cli12_GLOBAL__N_1\d+(avx2|avx512|avx512_bf16)_loopEl")

# Mnemonics that begin with v and are no vector instructions.
NO_VECTOR = {"verr", "verw", "vmcall", "vmmcall", "vmrun"}

# What opens a connection, starts a program or loads code, for which SECURITY.md says that heed calls none of them. The last
# ones do it inside the C library: users and groups, words of a shell, character sets. `syscall` is not among them: it is how
# libstdc++ waits for a std::atomic, and no source of heed has that word.
NOT_CALLED = (
    ("opens a connection", r"socket|socketpair|connect|bind|listen|accept4?|send(to|m?msg)?|recv(from|m?msg)?|getaddrinfo|getnameinfo|"
                           r"gethostby\w+|res_\w+"),
    ("starts a program", r"exec(l|lp|le|v|ve|vp|vpe|veat)|fexecve|posix_spawnp?|system|popen|v?fork|forkpty|clone3?|wordexp"),
    ("loads code", r"dl(m?open|sym|vsym)|iconv_open|get(pw|gr)(nam|uid|gid|ent)(_r)?"))


# What prints or ends the program, as the README says that no library of heed does, or asks for memory that no test sees. It
# excepts the checks of a hardened build (__stack_chk_fail, __chk_fail, std::__glibcxx_assert_fail); std::terminate is what
# compilers call where noexcept is broken.
NO_MANNERS = (
    ("prints", r"v?d?f?w?printf|f?puts(_unlocked)?|f?putw?c(_unlocked|har)?|putchar(_unlocked)?|fwrite(_unlocked)?|write|writev|perror|psignal|v?syslog|"
               r"v?(err|warn)x?|stdout|stderr|ZSt(4cout|4cerr|4clog|5wcout|5wcerr|5wclog)|ZNSt8ios_base4InitC1Ev"),
    ("ends the program", r"abort|[eE]xit|quick_exit|exit_group|assert_fail|assert_perror_fail|raise|kill|tgkill"),
    # Only operator new and aligned_alloc: what tests/faults counts, and lets fail.
    ("asks for memory past operator new", r"[mc]alloc|realloc(array)?|(posix_)?memalign|p?valloc|strn?dup|v?asprintf|mmap|s?brk|open_memstream"))


def output_of(*command):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, check=True).stdout


def exports(library, listed, write=False):
    """The library shows exactly the names of the list."""
    lines = output_of("nm", "-D", "-C", "--defined-only", library).splitlines()
    found = sorted({line.split(" ", 2)[2] for line in lines})
    if write:
        listed.write_text("\n".join(found) + "\n", encoding="utf-8")
    known = listed.read_text(encoding="utf-8").splitlines()
    for name in sorted(set(known) - set(found)):
        yield f"{name} is listed in {listed.name} and not exported: who links it breaks"
    for name in sorted(set(found) - set(known)):
        yield f"{name} is exported and not listed in {listed.name}"


def is_vector(mnemonic):
    """VEX or EVEX, masks too: what a CPU without AVX does not know."""
    return mnemonic.startswith(("v", "k")) and mnemonic not in NO_VECTOR


def is_evex(code):
    """What a CPU without AVX-512 does not know, by its bytes: EVEX, which BOUND was before there were 64 bits, behind a prefix
    of addresses if there is one; registers may be those of AVX2."""
    return re.match(r"(?:67 )?62 ", code) is not None


def vector_functions(library):
    """(object, function, whether it has an instruction of AVX-512) for each function with a vector instruction."""
    member = function = None
    found = wide = False
    process = subprocess.Popen(["objdump", "-d", "-w", str(library)], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith(" "):
            _, *parts = line.split("\t")
            if len(parts) > 1 and is_vector(parts[1].split(" ", 1)[0].strip()):
                found = True
                wide = wide or is_evex(parts[0]) or "%k" in parts[1]
            continue
        if found:
            yield member, function, wide
        found = wide = False
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = match[1]
        elif match := re.match(r"(\S+):\s+file format", line):
            member, function = match[1], None
    if found:
        yield member, function, wide
    if process.wait():
        raise SystemExit(f"objdump failed on {library}")


def owned_twice(library):
    """Weak functions of an instruction set in more than one object: one namespace may be compiled for more than one CPU
    (AVX-512 with and without dot products of bfloat16), and the linker keeps any of the copies for all."""
    members = {}
    for line in output_of("nm", "-A", library).splitlines():
        found = re.match(r"(?:.*:)?(\S+?): *[0-9a-f]+ [WV] (\S+)$", line)
        if found and OWNED.search(found[2]):
            members.setdefault(found[2], []).append(found[1])
    return {function: objects for function, objects in members.items() if len(objects) > 1}


def targets(library):
    """Vector code belongs to functions of an instruction set's namespace. Elsewhere it may run on any CPU:
    when the program starts (.init_array), or because the linker kept this copy of a weak function. That of AVX-512 does not
    belong to AVX2's. Returns how many functions have such code."""
    weak = {line.split()[-1] for line in output_of("nm", library).splitlines() if re.search(r" [WV] ", line)}
    count = 0
    for member, function, wide in vector_functions(library):
        count += 1
        if function.startswith("_GLOBAL__sub_I"):
            yield f"{member}: {function} runs vector code when the program starts"
        elif wide and OF_AVX2.search(function):
            yield f"{member}: {function} is of AVX2 and has code of AVX-512"
        elif not OWNED.search(function) and not LOOPS.fullmatch(function):
            kind = "weak " if function in weak else ""
            yield f"{member}: {kind}function {function} has vector code and belongs to no instruction set"
    for function, members in owned_twice(library).items():
        yield f"{', '.join(members)}: weak function {function} is in each of them, and the linker keeps one"
    for line in output_of("nm", "-A", library).splitlines():
        if match := re.search(r"(bf16|conversions|kernels_f\d\d)\.cc\.o: +U __stack_chk_fail", line):
            yield f"{match[1]}.cc: the kernels check the stack, which costs time and guards nothing (src/kernels/CMakeLists.txt)"
    return count


def targets_of_all(files):
    """The first has the kernels, the others what is built on them."""
    for file in files:
        count = yield from targets(file)
        if file == files[0] and count < 100:
            yield f"{file} has {count} functions with vector code; expected hundreds"


def hardening(program):
    """As Debian builds it: position independent, bound at the start, nothing writable that is executed."""
    if not re.search(r"DYN \((Position-Independent Executable|Shared object) file\)", output_of("readelf", "-h", program)):
        yield f"{program} is no position independent executable and no shared library"
    segments = output_of("readelf", "-lW", program)
    if "GNU_RELRO" not in segments:
        yield f"{program} has no read-only relocations (RELRO)"
    if not re.search(r"GNU_STACK .* RW +0x", segments):
        yield f"{program} has an executable stack"
    if not re.search(r"FLAGS.*BIND_NOW|FLAGS_1.*NOW", output_of("readelf", "-dW", program)):
        yield f"{program} binds its functions late (not -z now)"
    imported = output_of("nm", "-D", "--undefined-only", program)
    for name, what in (("__stack_chk_fail", "stack protector"), (r"__\w+_chk", "_FORTIFY_SOURCE")):
        if not re.search(rf" {name}\b", imported):
            yield f"{program} calls no {name}: {what} is off"


def imports(program, unwanted=NOT_CALLED):
    """It asks the C library for nothing that SECURITY.md says is not done. What its libraries ask for is theirs."""
    for line in output_of("nm", "-D", "--undefined-only", program).splitlines():
        name = line.split()[-1].partition("@")[0]
        for what, names in unwanted:
            if re.fullmatch(rf"_*({names})(_chk|64)?", name):
                yield f"{program} calls {name}, which {what}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=["exports", "targets", "hardening", "imports", "manners"])
    parser.add_argument("files", type=pathlib.Path, nargs="+", metavar="FILE")
    parser.add_argument("--write", action="store_true", help="exports: make the list what the library has")
    arguments = parser.parse_args()
    if arguments.question == "exports":
        wrong = list(exports(*arguments.files, arguments.write))
    elif arguments.question == "targets":
        wrong = list(targets_of_all(arguments.files))
    elif arguments.question in ("imports", "manners"):
        unwanted = NOT_CALLED if arguments.question == "imports" else NO_MANNERS
        wrong = [line for file in arguments.files for line in imports(file, unwanted)]
    else:
        wrong = list(hardening(*arguments.files))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

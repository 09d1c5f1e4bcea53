"""Each question of binaries.py finds what it asks about in files that are made wrong."""

import pathlib
import platform
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


def compiled(folder, source, name, *flags):
    (folder / "x.cc").write_text(source)
    subprocess.run(["c++", "-O2", *flags, folder / "x.cc", "-o", folder / name], check=True)
    return folder / name


def wrong(*arguments):
    done = subprocess.run([sys.executable, HERE / "binaries.py", *arguments], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == bool(done.stdout.strip())
    return done.stdout


def test_names_that_come_and_go_are_found(tmp_path):
    library = compiled(tmp_path, "namespace heed { void kept() {} void extra() {} }", "x.so", "-shared", "-fPIC")
    listed = tmp_path / "list.txt"
    listed.write_text("heed::gone()\nheed::kept()\n")
    said = wrong("exports", library, listed).splitlines()
    assert [line.split()[0] for line in said] == ["heed::gone()", "heed::extra()"]
    assert "breaks" in said[0] and "not listed" in said[1]
    listed.write_text("heed::extra()\nheed::kept()\n")
    assert wrong("exports", library, listed) == "\n"


VECTOR = '__attribute__((target("avx2"))) '
FUNCTION = "void {0}(float* x) {{ for (int i = 0; i < 64; ++i) x[i] += 1; }}\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX")
def test_vector_code_outside_of_its_namespace_is_found(tmp_path):
    def of(source):
        return wrong("targets", compiled(tmp_path, source, "x.o", "-c", "-O3", "-fno-inline", "-fno-ipa-icf"))

    said = of("namespace heed::kernels::N_AVX2 {\n" + VECTOR + FUNCTION.format("fine") + "}\n" +
              VECTOR + FUNCTION.format("anybodys"))
    assert "anybodys" in said and "fine" not in said
    said = of("#include <vector>\n" + VECTOR + "inline " + FUNCTION.format("shared") + VECTOR +
              "void user(float* x) { shared(x); }\n")
    assert "weak function" in said
    said = of(VECTOR + "static float sum(float* x) { float s[8] = {}; for (int i = 0; i < 64; ++i) s[i % 8] += x[i] * 3;"
              " return s[3]; }\nfloat x[64], y = sum(x);\n")
    assert "sum" in said
    assert "expected hundreds" in of(FUNCTION.format("plain"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX")
@pytest.mark.parametrize("code, fine", [
    ("vpermd %%ymm0, %%ymm1, %%ymm2", True), ("vaddps %%zmm0, %%zmm1, %%zmm2", False), ("vaddps %%ymm16, %%ymm1, %%ymm2", False),
    ("vpermt2ps %%ymm0, %%ymm1, %%ymm2", False), ("vpternlogd $1, (%%edi), %%ymm1, %%ymm2", False), ("kmovw %%eax, %%k1", False)])
def test_code_of_avx_512_in_the_namespace_of_avx2_is_found(code, fine, tmp_path):
    """Also where only the instruction is AVX-512's, and none of its registers."""
    for space in ("N_AVX2", "N_AVX3"):
        source = "namespace heed::kernels::%s { void kernel() { asm volatile(\"%s; vzeroupper\" ::: \"memory\"); } }\n" % (space, code)
        told = wrong("targets", compiled(tmp_path, source, "x.o", "-c"))
        assert ("kernel" in told) == (space == "N_AVX2" and not fine), told
        assert "is of AVX2 and has code of AVX-512" in told or "kernel" not in told


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX")
def test_what_stands_on_the_kernels_has_the_loops_of_the_measurement_alone(tmp_path):
    """Of libraries and programs behind the first file, which need not have vector code."""
    def of(name, more=""):
        loop = "namespace heed::cli { namespace {\n" + VECTOR + "void " + name + "(long n) { static float x[64]; for (long i = 0; " \
               "i < n; ++i) for (float& y : x) y += 1; asm volatile(\"\" :: \"r\"(x)); }\n} void (*used)(long) = " + name + "; }\n"
        return wrong("targets", plain, compiled(tmp_path, loop + more, "x.o", "-c", "-O3", "-fno-inline"))

    plain = compiled(tmp_path, FUNCTION.format("plain"), "plain.o", "-c", "-O2", "-fno-tree-vectorize")
    few = f"{plain} has 0 functions with vector code; expected hundreds\n"
    assert of("avx2_loop") == of("avx512_bf16_loop") == few
    assert "other_loopEl has vector code and belongs to no instruction set" in of("other_loop")
    assert "anybodys" in of("avx2_loop", VECTOR + FUNCTION.format("anybodys"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX")
def test_one_vector_function_in_two_objects_is_found(tmp_path):
    """Each may be compiled for another CPU."""
    source = ("namespace heed::kernels::N_AVX3 { template <typename T> " + VECTOR + "void key(T* x) { for (int i = 0; i < 64; ++i) "
              "x[i] += 1; }\n" + VECTOR + "void %s(float* x) { key(x); } }\n")
    objects = [compiled(tmp_path, source % name, name + ".o", "-c", "-O3", "-fno-inline") for name in ("first", "second")]
    for names, told in ((objects[:1], False), (objects, True)):
        (tmp_path / "x.a").unlink(missing_ok=True)
        subprocess.run(["ar", "rc", tmp_path / "x.a", *names], check=True)
        assert ("first.o, second.o: weak function" in wrong("targets", tmp_path / "x.a")) == told


def test_what_connects_or_starts_a_program_or_loads_code_is_found(tmp_path):
    def of(names):
        source = "".join(f'extern "C" void {name}();\n' for name in names) + "void all() {" + "".join(f"{name}();" for name in names) + "}"
        return wrong("imports", compiled(tmp_path, source, "x.so", "-shared", "-fPIC", "-fno-builtin"))

    told = {"opens a connection": "socket connect accept4 sendto __recvfrom_chk getaddrinfo gethostbyname_r",
            "starts a program": "execve execlp posix_spawn posix_spawnp fork vfork system popen wordexp",
            "loads code": "dlopen dlmopen dlsym iconv_open getpwuid_r"}
    for what, names in told.items():
        for name in names.split():
            assert of([name, "pread"]).endswith(f"x.so calls {name}, which {what}\n"), name
    sources = [path for folder in ("src", "cli", "python/src") for path in (HERE.parents[1] / folder).rglob("*.[ch]*")]
    assert len(sources) > 100 and not [path for path in sources if "syscall" in path.read_text()]   # libstdc++ calls it, too
    assert of("__register_atfork pthread_atfork disconnect fopen open64 pread recvd syscall listener".split()) == "\n"


@pytest.mark.parametrize("code, told", [
    ("std::printf(\"%d\", n);", "prints"), ("std::puts(\"n\");", "prints"), ("std::fprintf(stderr, \"%d\", n);", "prints"),
    ("std::cerr << n;", "prints"), ("std::perror(\"n\");", "prints"), ("(void)!write(2, \"n\", 1);", "prints"),
    ("std::abort();", "ends the program"), ("std::exit(n);", "ends the program"), ("_exit(n);", "ends the program"),
    ("assert(n > 0);", "ends the program"), ("std::quick_exit(n);", "ends the program"),
    ("p = std::malloc(n);", "asks for memory past operator new"), ("p = std::realloc(p, n);", "asks for memory past operator new"),
    ("(void)!posix_memalign(&p, 64, n);", "asks for memory past operator new"), ("p = new char[n];", None),
    ("p = mmap(p, n, 0, 0, 0, 0);", "asks for memory past operator new"), ("p = std::aligned_alloc(64, n);", None),
    ("char b[9]; std::snprintf(b, 9, \"%d\", n); (void)!pwrite(n, b, 9, 0);", None), ("throw n;", None), ("(void)rename(\"a\", \"b\");", None)])
def test_a_library_without_manners_is_found(code, told, tmp_path):
    source = "#include <cassert>\n#include <cstdio>\n#include <cstdlib>\n#include <iostream>\n#include <sys/mman.h>\n#include <unistd.h>\n"
    source = source if "cerr" in code else source.replace("#include <iostream>\n", "")   # which makes the streams wherever it stands
    said = wrong("manners", compiled(tmp_path, source + f"void* p;\nvoid f(int n) {{ {code} }}\n", "x.so", "-shared", "-fPIC"))
    assert said == "\n" if told is None else f", which {told}\n" in said, said


def test_a_program_that_is_not_hardened_is_found(tmp_path):
    source = "#include <cstdio>\nint main(int n, char** v) { char b[64]; std::snprintf(b, 60u + n, \"%s\", v[0]); return b[0]; }"
    hardened = ["-fPIE", "-pie", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-Wl,-z,relro,-z,now"]
    assert wrong("hardening", compiled(tmp_path, source, "x", *hardened)) == "\n"
    for flags, told in ((["-no-pie"], "position independent"), (["-Wl,-z,norelro"], "RELRO"), (["-Wl,-z,lazy"], "late"),
                        (["-Wl,-z,execstack"], "stack"), (["-fno-stack-protector"], "stack protector"),
                        (["-U_FORTIFY_SOURCE"], "_FORTIFY_SOURCE")):
        assert told in wrong("hardening", compiled(tmp_path, source, "x", *hardened, *flags)), flags

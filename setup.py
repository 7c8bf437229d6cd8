"""Compile the Cython modules. Everything else about the package stands in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# What CXXFLAGS say of it wins. (The modules are C++: CFLAGS do not reach them.) Python's own flags ask for what a
# debugger reads; without it compiling takes a quarter less.
FLAGS = os.environ.get("CXXFLAGS", "")
OPTIONS = [*([] if "-O" in FLAGS else ["-O3"]), *([] if "-g" in FLAGS else ["-g0"])]

# They read bytes that they do not trust. A sanitizer has checks of its own.
HARDENED = [] if "-fsanitize" in FLAGS else ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]

LIBRARIES = {
    "events": ["deflate"],
    "slots": ["deflate"],
    "zstd": ["zstd"],
    "inflate": ["z", "zstd"],
    "binary": ["z"],
    "mask": ["crypto"],
}


def extension(source: Path) -> Extension:
    return Extension(
        ".".join(source.relative_to("src").with_suffix("").parts),
        [str(source)],
        language="c++",
        depends=["setup.py"],
        include_dirs=["src/sluice/protocol"],
        libraries=LIBRARIES.get(source.stem, []),
        # Structures that a call fills are "maybe uninitialized" to gcc, which does not follow Cython's error paths.
        extra_compile_args=[*OPTIONS, *HARDENED, "-std=c++17", "-Wno-maybe-uninitialized"],
        extra_link_args=["-Wl,-z,relro,-z,now"],
    )


# An editable installation compiles in a folder that it throws away. scripts/setup.sh has it link only; what compiles is
# `build_ext --inplace`, which knows what it has compiled before.
links_only = "SETUP_LINKS_ONLY" in os.environ
sources = [] if links_only else sorted(Path("src/sluice").glob("*/**/*.pyx"))
setup(
    ext_modules=cythonize(  # type: ignore[no-untyped-call]  # Cython does not say
        [extension(source) for source in sources],
        include_path=["src"],
        build_dir="build/cython",
        language_level=3,
        nthreads=os.cpu_count(),
        quiet=True,
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
        },
    ),
    options={"build_ext": {"parallel": str(os.cpu_count())}},
)

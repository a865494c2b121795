# One static binary in an empty image, for a build of one's own. The images of a release are made by release/build, which
# reads port, user and entry point here.
#
#   docker build --build-arg ALLOCATOR=system|jemalloc|c-shim [--build-arg SHIM_MALLOC=musl|mimalloc|jemalloc] \
#     --build-arg KUBE_CANARY_REVISION="$(git rev-parse --short=12 HEAD)" .
#
# Platforms: linux/amd64 and linux/arm64 (`docker buildx build --platform …`), each compiled on its own architecture, under
# emulation where the machine has only the other. release/build compiles both on amd64.
#
# Without a network: name a local image with Rust, its musl target, gcc, make and musl-tools by `--build-arg BUILDER=…`
# (tests/image/builder makes one) and put the crates beside the sources, by
# `cargo vendor --sync c-shim/mallocs/Cargo.toml`; a vendor/ directory in the build context is used by itself. No `# syntax=`
# line, for that is one more image to pull.
ARG BUILDER=docker.io/library/rust:1.95-bookworm

FROM ${BUILDER} AS build
ARG TARGETARCH
ARG ALLOCATOR=system
ARG SHIM_MALLOC=musl
# jemalloc's arenas, baked in (the jemalloc allocator only); empty is the crate's own default.
ARG KUBE_CANARY_NARENAS=
# The commit, for `kube-canary version` and build_info: no repository is in the build context.
ARG KUBE_CANARY_REVISION=
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /build
ENV CARGO_HOME=/cargo CARGO_TARGET_DIR=/build/target \
    CC_x86_64_unknown_linux_musl=musl-gcc

# What a public Rust image lacks; a local builder has it all and skips both.
RUN case "$TARGETARCH" in \
      amd64) echo x86_64-unknown-linux-musl ;; \
      arm64) echo aarch64-unknown-linux-musl ;; \
      *) echo "TARGETARCH=$TARGETARCH: amd64 and arm64 are built" >&2; exit 1 ;; \
    esac >/triple; \
    if ! command -v musl-gcc >/dev/null || ! command -v make >/dev/null; then \
      apt-get update; \
      apt-get install -y --no-install-recommends make musl-tools; \
      rm -rf /var/lib/apt/lists/*; \
    fi; \
    if [[ ! -d $(rustc --print sysroot)/lib/rustlib/$(</triple) ]]; then rustup target add "$(</triple)"; fi

# .dockerignore says what of the repository gets here.
COPY . .

# The cache mount keeps compiled dependencies from build to build. Cargo compares times, not contents, and a context may
# bring back older files: touching our own makes them newer than whatever the cache holds of them.
RUN --mount=type=cache,id=kube-canary-target-${TARGETARCH},target=/build/target,sharing=locked \
    triple=$(</triple); \
    mkdir -p /out "$CARGO_HOME"; \
    if [[ -d vendor ]]; then \
      printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "/build/vendor"\n[net]\noffline = true\n' \
        >"$CARGO_HOME/config.toml"; \
    fi; \
    find build.rs src c-shim -name '*.[chr]*' -exec touch {} +; \
    if [[ -z $KUBE_CANARY_NARENAS ]]; then unset KUBE_CANARY_NARENAS; else export KUBE_CANARY_NARENAS; fi; \
    case "$ALLOCATOR" in \
      system | jemalloc | c-shim) ;; \
      *) echo "ALLOCATOR=$ALLOCATOR: one of system, jemalloc, c-shim" >&2; exit 1 ;; \
    esac; \
    if [[ $ALLOCATOR == c-shim && $SHIM_MALLOC != musl ]]; then \
      c-shim/mallocs/source "$SHIM_MALLOC" /malloc; \
      make -C c-shim MALLOC="$SHIM_MALLOC" MIMALLOC_SRC=/malloc JEMALLOC_SRC=/malloc TARGET="$triple" OUT=/out/kube-canary; \
    else \
      cargo build --release --locked --bin kube-canary --target "$triple" --features "${ALLOCATOR#system}"; \
      cp "target/$triple/release/kube-canary" /out/; \
    fi; \
    if readelf -l /out/kube-canary | grep -q INTERP; then echo "/out/kube-canary is not static" >&2; exit 1; fi; \
    if ! readelf -h /out/kube-canary | grep -q 'Type: *DYN'; then \
      echo "/out/kube-canary lies at a fixed address: see docs/adr/0010-position-independent.md" >&2; exit 1; \
    fi

FROM scratch
COPY --from=build /out/kube-canary /kube-canary
# Numeric, for runAsNonRoot is checked without a /etc/passwd; the group is what net.ipv4.ping_group_range names.
USER 65532:65532
# HTTP and answers to probes by UDP; handshakes of probes by TCP.
EXPOSE 9877 9877/udp 9878
ENTRYPOINT ["/kube-canary"]

# The command in an image: docker build -t pipewright . && docker run --rm pipewright train --steps 3
# On GPUs: docker run --gpus all ..., on an image of NVIDIA with the CUDA libraries: --build-arg BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
ARG BASE=debian:trixie-slim
FROM rust:1-trixie AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package pipewright-cli --features parquet,tls

FROM ${BASE}
COPY --from=build /source/target/release/pipewright /usr/local/bin/pipewright
COPY --from=build /source/examples /examples
WORKDIR /work
ENTRYPOINT ["pipewright"]

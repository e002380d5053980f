# The command in an image: docker build -t pipewright . && docker run --rm pipewright train --steps 3
# On GPUs: docker run --gpus all ..., on an image of NVIDIA with the CUDA libraries: --build-arg BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
ARG BASE=debian:trixie-slim
FROM rust:1-trixie AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package pipewright-cli --features cloud,parquet,tls

FROM ${BASE}
COPY --from=build /source/target/release/pipewright /usr/local/bin/pipewright
COPY --from=build /source/examples /examples
# Object stores are asked by https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
WORKDIR /work
ENTRYPOINT ["pipewright"]

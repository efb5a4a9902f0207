# Two stages: the first compiles, the second carries the binary and the libraries that it loads.
# Plain instructions only, so that every builder can read it, the classic one of older engines too.
FROM debian:bookworm-slim AS build
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      cmake g++ gcc libc6-dev ninja-build pkg-config \
      libbson-dev libhiredis-dev libjansson-dev libmicrohttpd-dev libmongoc-dev librdkafka-dev \
      libtomlplusplus-dev libxxhash-dev uthash-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json ./
COPY include include
COPY src src
COPY bench bench
RUN cmake --preset release -DBUILD_TESTING=OFF \
 && cmake --build --preset release --target idemsink \
 && install -s build/release/idemsink /usr/local/bin/idemsink

FROM debian:bookworm-slim
# ca-certificates: for brokers and MongoDB servers that are spoken to over TLS.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates libbson-1.0-0 libhiredis0.14 libjansson4 libmicrohttpd12 libmongoc-1.0-0 \
      librdkafka1 libstdc++6 libxxhash0 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 idemsink \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin idemsink
COPY --from=build /usr/local/bin/idemsink /usr/local/bin/idemsink
# Fails here, and not at the first start, when a library is missing.
RUN ["idemsink", "--version"]
# Nobody reads libmongoc's counters, and a kill leaves them in /dev/shm.
ENV MONGOC_DISABLE_SHM=1
# By number, so that an orchestrator can see that it isn't root.
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["idemsink"]
CMD ["run", "-c", "/etc/idemsink/idemsink.toml"]

# Everything is done by the scripts in .ci; this file names them.
# `make help` lists the targets. Fetched and built parts of the engine live in
# ${QR_CACHE:-${XDG_CACHE_HOME:-~/.cache}/qr-gateway}, not in the checkout.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:

# What a user may set, on make's command line or in the environment:
#   QR_CACHE=DIR       the cache
#   LLAMA_SRC=TREE     another llama.cpp source tree
#   MODEL=FILE.gguf    another model
#   LISTEN=HOST:PORT   where the gateway of `make run` and `make demo` listens
#   DEMO_PORT=PORT     where Open WebUI of `make demo` listens
#   GGML_CUDA=1, GGML_VULKAN=1, GGML_HIP=1, GGML_METAL=1, GGML_NATIVE=0,
#   GGML_OPENMP=1, QR_CMAKE_ARGS="-D...": how llama.cpp is built
#   SIMD=1             build with vector instructions for the sampler, which Go calls an
#                      experiment; used where the machine has AVX-512
#   FUZZTIME=10s       how long `make fuzz` runs each target
#   QR_DRILL_REQUESTS=2000, QR_DRILL_SEED=N, QR_DRILL_LOGS=DIR: how long `make drill`
#                      is, which faults it draws, where it leaves the logs of a failure
#   QR_BROWSER=NAME    the browser of `make e2e-openwebui`; else chromium or google-chrome
#   QR_E2E_UPDATE=1    it replaces the pictures of docs/open-webui.md
export QR_CACHE LLAMA_SRC MODEL JOBS QR_CMAKE_ARGS CMAKE_CUDA_ARCHITECTURES CMAKE_HIP_ARCHITECTURES
export GGML_CUDA GGML_HIP GGML_VULKAN GGML_METAL GGML_SYCL GGML_BLAS GGML_NATIVE GGML_OPENMP
export QR_DRILL_REQUESTS QR_DRILL_SEED QR_DRILL_LOGS FUZZTIME QR_BROWSER QR_E2E_UPDATE LISTEN DEMO_PORT
ifeq ($(SIMD),1)
export GOEXPERIMENT := $(GOEXPERIMENT:%=%,)simd
endif

go_build := go build -trimpath -buildvcs=false -ldflags=-s

.PHONY: help run build gateway engine engine-lib engine-env test-env model-path llama-bench-bin \
	demo test verify drill bench bench-peers e2e-openwebui e2e-vllm lint fmt proto fuzz clean clean-cache

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-16s %s\n", $$1, $$2}'
	@echo; sed -n '/^# What a user may set/,/^export/s/^# \{0,1\}//p' Makefile

run: build ## fetch, build and start the server on 127.0.0.1:8080
	@model=$$(.ci/model); \
	exec bin/qr-gateway serve --config configs/qr-gateway.yaml --model "smollm2=$$model" $(if $(LISTEN),--listen "$(LISTEN)")

demo: ## start the gateway and Open WebUI with the filter, and print the address
	@exec .ci/demo

build: ## build bin/qr-gateway and bin/qr-engine with all they need
	@.ci/tools build
	@.ci/model >/dev/null
	@$(MAKE) gateway & gateway=$$!; $(MAKE) engine || { wait $$gateway; exit 1; }; wait $$gateway

gateway: ## build bin/qr-gateway (pure Go)
	@revision=$$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || true); \
	CGO_ENABLED=0 $(go_build)" -X main.revision=$$revision" -o bin/qr-gateway ./cmd/qr-gateway

engine: ## build libqrllama.so and bin/qr-engine
	@env=$$(.ci/engine-env); eval "$$env"; \
	$(go_build) -tags llama -o bin/qr-engine ./cmd/qr-engine

engine-lib: ## build libqrllama.so in the cache and print its directory
	@.ci/engine-lib

engine-env: ## put libqrllama.so into bin/ and print the cgo settings: eval "$(make -s engine-env)"
	@.ci/engine-env

test-env: ## print what the tests need to know: eval "$(make -s test-env)"
	@.ci/test-env

model-path: ## print the model's file, fetched if need be
	@.ci/model

test: ## set up and run every test
	@.ci/test

verify: ## run the long equivalence checks on the real model
	@.ci/verify

drill: ## kill, freeze and cut off parts of a cluster under load, and check every answer
	@.ci/drill

e2e-openwebui: ## test with the real Open WebUI in a real browser; pictures and logs in artifacts/
	@.ci/e2e-openwebui

e2e-vllm: ## test with real vLLMs whose tokens the gateway chooses; logs in artifacts/
	@.ci/e2e-vllm

bench: build ## measure decoding and the sampler
	@.ci/bench

llama-bench-bin: ## build llama-bench from the engine's own objects and print its path
	@.ci/engine-lib --llama-bench

bench-peers: build ## measure plain decoding beside llama-bench
	@bench=$$(.ci/engine-lib --llama-bench); model=$$(.ci/model); \
	bin/qr-gateway bench peers --llama-bench "$$bench" --model "$$model"

lint: ## run golangci-lint, built into the cache the first time
	@.ci/lint

fmt: ## format the Go code as the linter wants it
	@.ci/lint --fmt

proto: ## regenerate the gRPC code
	@.ci/proto

fuzz: ## run each fuzz target for a short while
	@.ci/fuzz

clean: ## remove bin/
	@rm -rf bin

clean-cache: ## remove everything that was fetched or built into the cache
	@.ci/clean-cache

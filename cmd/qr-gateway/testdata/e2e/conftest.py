"""Fixtures for the end-to-end tests: the stock OpenAI client against a running gateway (QR_URL) that serves smollm2."""

import os

import httpx
import openai
import pytest


@pytest.fixture(scope="session")
def url() -> str:
    return os.environ["QR_URL"]


@pytest.fixture(scope="session")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url + "/v1", api_key="none", timeout=120, max_retries=0)


@pytest.fixture(scope="session")
def http(url: str) -> httpx.Client:
    with httpx.Client(base_url=url, timeout=120) as c:
        yield c

# Whisper tiny.en on CPUs: the demo of `make run`, or the server.
#   docker build -t streaming-asr .
#   docker run --rm streaming-asr
#   docker run --rm -p 8000:8000 streaming-asr serve host=0.0.0.0 token=SECRET
FROM python:3.11-slim

# An index without torch for CPUs, or "", takes that of PyPI, which carries CUDA.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY conf conf
COPY streaming_asr streaming_asr
RUN pip install --no-cache-dir -c constraints.txt '.[live]'

RUN useradd --create-home listener
USER listener
WORKDIR /home/listener
RUN streaming-asr get tiny.en prompts

EXPOSE 8000
ENTRYPOINT ["streaming-asr"]
CMD ["demo"]

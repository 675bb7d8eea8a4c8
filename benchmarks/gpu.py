"""Our server beside `transformers serve` on a GPU, with a model of a billion random weights.

    python benchmarks/gpu.py [--rounds 3] [--json FILE] [--model FOLDER]

The model is a Llama of 1.07 billion parameters in bf16, made here, with the embedded model's
tokenizer: what it says means nothing, how fast it says so does. `--model` takes a real one. A
server without a GPU is not measured: where there is none, this says so and ends.
"""

import argparse
import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path

import peers
from client import RequestFailed
from loads import LOADS
from peers import Server, ServerFailed
from report import Visit
from server import show, visit
from weights import write_tokenizer

from antiphon.engine.checkpoints.gguf import GGUFFile
from antiphon.models import embedded
from antiphon.settings import Settings

_SLOTS = 64
_SHAPE = {
    "vocab_size": 49152,  # The tokenizer's.
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def random_folder(cache_dir: Path) -> Path:
    """A folder with a Llama of random bf16 weights; written once (2.1 GB), the same each time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = cache_dir / "benchmarks" / "random-llama-1b"
    if (folder / "tokenizer.json").is_file():
        return folder
    torch.manual_seed(1)
    with torch.device("cuda"):
        module = LlamaForCausalLM(LlamaConfig(dtype="bfloat16", **_SHAPE)).to(torch.bfloat16)
    module.save_pretrained(folder)
    gguf = embedded.fetch(cache_dir, lambda done, size: None)
    # Written last: its being there says that the rest is.
    write_tokenizer(GGUFFile(gguf).metadata, folder)
    return folder


def has_gpu() -> bool:
    """Whether torch can compute on a CUDA device here."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def measure(arguments: argparse.Namespace, servers: list[Server]) -> list[Visit]:
    """All rounds, in an order that turns."""
    visits: list[Visit] = []
    for number in range(arguments.rounds):
        turn = number % len(servers)
        for server in [*servers[turn:], *servers[:turn]]:
            print(f"round {number + 1} of {arguments.rounds}, {server.name}", flush=True)
            try:
                seen = visit(server, number, arguments.loads.split(","), seed=1)
            except (ServerFailed, RequestFailed) as error:
                print(f"{server.name} is left out of this round: {error}")
                continue
            # What lies in the GPU's memory is not in it.
            figures = {name: value for name, value in seen.figures.items() if name != "resident"}
            visits.append(Visit(number, seen.server, seen.precision, figures, seen.failed))
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(v) for v in visits], indent=1))
    return visits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--model", type=Path, metavar="FOLDER")
    parser.add_argument("--transformers", metavar="PATH")
    parser.add_argument("--antiphon-flags", default="", metavar="FLAGS", help="further flags")
    parser.add_argument("--transformers-flags", default="", metavar="FLAGS", help="further flags")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    arguments = parser.parse_args()
    peers.stop_servers_when_told_to_end()
    if not has_gpu():
        print("There is no GPU that torch can use here, so there is nothing to measure.")
        return
    folder = arguments.model or random_folder(Settings().cache_dir)
    threads = os.cpu_count() or 1
    flags = shlex.split(arguments.antiphon_flags)
    servers = [peers.antiphon(folder, threads, _SLOTS, flags, "bf16")]
    executable = peers.find(["transformers"], arguments.transformers)
    if executable is None:
        print("transformers is left out: it was not found. --transformers PATH names it.")
    else:
        flags = shlex.split(arguments.transformers_flags)
        servers.append(peers.transformers_serve(executable, folder, threads, flags, "bf16"))
    show(measure(arguments, servers), arguments.plot)


if __name__ == "__main__":
    main()

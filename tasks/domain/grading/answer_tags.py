"""What a completion marks as its answer."""

from __future__ import annotations


def answer_blocks(text: str, unclosed: bool = True) -> list[str]:
    """What stands inside `<answer>` tags, block by block, in one pass. unclosed: also what is never closed.

    >>> answer_blocks("<answer>7</answer> or <answer>8")
    ['7', '8']
    """
    blocks, end = [], 0
    while (start := text.find("<answer>", end)) >= 0:
        start += len("<answer>")
        stop = text.find("</answer>", start)
        if stop < 0:
            return [*blocks, text[start:]] if unclosed else blocks
        blocks.append(text[start:stop])
        end = stop + len("</answer>")
    return blocks

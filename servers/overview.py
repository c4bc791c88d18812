"""The table of servers, as text for the guide."""


def share(value):
    return "<1 %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def cell(text):
    """Text as it may stand in a cell of a table in Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")


def objects(row):
    if row.get("unrecorded"):
        return f"none of the server: nothing of `{row['unrecorded']}` was recorded"
    return ", ".join(f"`{name}` {share(part)}" for name, part in row["top"]) or "none"


def without(row):
    """Accesses, or pages, that belong to no object that is known."""
    if row["counted"] == "memory accesses" and not row["samples"]:
        return "-"
    return share(row["without"] / row["samples"]) if row["samples"] else "-"


def row_of(name, engine, row):
    if row.get("failed"):
        return f"| {name} | {engine} | failed | - | - | - | {cell(row['failed'])} |"
    low, high = row["ratios"][0], row["ratios"][-1]
    spread = f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})" if len(row["ratios"]) > 1 else f"{row['ratio']:.0f}"
    lost = f"; {row['lost']} records lost" if row["lost"] else ""
    recorder = "-" if row["recorder_s"] is None else f"{row['recorder_s']:.1f} s"
    return f"| {name} | {engine} | {spread} | {recorder} | {row['memory']:.1f} | {without(row)} | {cell(objects(row))}{lost} |"


def table(results):
    """One row for each server and engine."""
    columns = ["server", "engine", "server's CPU time x", "recorder", "memory x", "without object", "largest objects"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for one in results:
        name = f"{one['name']} ({cell(one['version'])})" if one["version"] else one["name"]
        if one["failed"]:
            lines.append(f"| {name} | - | failed | - | - | - | {cell(one['failed'])} |")
        for engine, row in one["engines"].items():
            lines.append(row_of(name, engine, row))
            name = one["name"]
    return "\n".join(lines) + "\n"


def loads(results):
    return "\n".join(f"* **{one['name']}**: {one['load']}." for one in results) + "\n"

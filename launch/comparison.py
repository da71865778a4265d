"""Whether a change made a difference, by runs with and without it that have their seeds in common.

    found = compare({1: 10.0, 2: 12.0, 3: 11.0}, {1: 15.1, 2: 17.9, 3: 16.4}, QUANTITIES["samples_per_s"], 0.95, 0.01)
    found["verdict"], found["difference"], found["half_width"]         # BETTER, 0.498..., 0.03...

The runs of one seed are a pair: they began with the same weights, saw the same samples, and ran one soon after the other. What
changes from seed to seed alike in both is no part of their difference, and neither is what the machine does slowly.
"""
import math
import statistics

from tables import number_text

BETTER, WORSE, SAME, UNKNOWN = "better", "worse", "no difference", "not known"


class Quantity:
    """`sign`: 1 where more is better, -1 where less is."""

    def __init__(self, name, unit, sign):
        self.name, self.unit, self.sign = name, unit, sign


QUANTITIES = {"samples_per_s": Quantity("samples/s", "samples/s", 1), "tensor_bytes": Quantity("memory", "bytes of the fullest rank", -1),
              "joules_per_sample": Quantity("energy", "J/sample", -1), "train_loss": Quantity("training loss", "", -1),
              "valid_loss": Quantity("validation loss", "", -1)}
LOSSES = ["train_loss", "valid_loss"]
GOALS = {"speed": "samples_per_s", "memory": "tensor_bytes", "energy": "joules_per_sample", "loss": "valid_loss"}


# ---- Student's t -----------------------------------------------------------------------------------------------------


def within(t, freedom):
    """Probability that Student's t with so many degrees of freedom is between -t and t: M. Abramowitz, I. Stegun, "Handbook of
    Mathematical Functions", 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, is_odd = math.cos(angle), freedom % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for k in range(1 if is_odd else 0, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total


def quantile(confidence, freedom):
    """The t for which within() is `confidence`."""
    low, high = 0.0, 1.0
    while within(high, freedom) < confidence:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return high


# ---- one quantity ----------------------------------------------------------------------------------------------------


def mean_and_spread(values):
    """(mean, standard deviation), None where there are too few, or one is no finite number."""
    if not values or not all(map(math.isfinite, values)):
        return None, None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def compare(before, after, quantity, confidence, least):
    """`before`, `after`: {seed: value}, without the change and with it; None is not known, infinity a loss that is no number.
    `confidence`: of the interval, below 1; `least`: the smallest relative difference that counts. A difference is the mean over the
    pairs of value / value before - 1, its half-width Student's t times the standard error; both are None where they are not known."""
    seeds = [seed for seed in before if before[seed] is not None and after.get(seed) is not None]
    mean, spread = mean_and_spread([before[seed] for seed in seeds])
    own_mean, own_spread = mean_and_spread([after[seed] for seed in seeds])
    found = {"pairs": len(seeds), "before": mean, "spread_before": spread, "after": own_mean, "spread_after": own_spread,
             "difference": None, "half_width": None, "verdict": UNKNOWN, "reason": None}
    if not seeds:
        found["reason"] = "there is no pair of runs that have it"
    elif mean is None:
        found["reason"] = "it is no finite number without the change"
    elif own_mean is None:
        found.update(verdict=WORSE, reason="it is no finite number")
    elif not all(before[seed] > 0 for seed in seeds):
        found["reason"] = "it is zero without the change"
    else:
        relative = [after[seed] / before[seed] - 1 for seed in seeds]
        found["difference"] = statistics.fmean(relative)
        if len(seeds) < 2:
            found["reason"] = "one seed tells nothing of their spread"
            return found
        error = statistics.stdev(relative) / math.sqrt(len(seeds))
        found["half_width"] = quantile(confidence, len(seeds) - 1) * error
        if not any(relative):
            found.update(verdict=SAME, reason="the same in all pairs")
        elif abs(found["difference"]) <= found["half_width"]:
            found.update(verdict=SAME, reason="within the spread of the seeds")
        elif abs(found["difference"]) < least:
            found.update(verdict=SAME, reason=f"below {number_text(100 * least)} %")
        else:
            found["verdict"] = BETTER if found["difference"] * quantity.sign > 0 else WORSE
    return found


def difference_text(found):
    """12.3 % more (± 4.1 %)."""
    if found["difference"] is None:
        return found["reason"]
    size = f"{number_text(abs(100 * found['difference']), 3)} % {'more' if found['difference'] >= 0 else 'less'}"
    return size if found["half_width"] is None else f"{size} (± {number_text(100 * found['half_width'], 2)} %)"


# ---- keep it or not --------------------------------------------------------------------------------------------------


def decide(found, goal):
    """(True to keep it, False not to, None where that is not known; why) by what compare() says of each quantity. It is kept where
    `goal` got better and no loss worse."""
    def text(key):
        return f"{QUANTITIES[key].name}{':' if found[key]['difference'] is None else ''} {difference_text(found[key])}"

    lost = [text(key) for key in LOSSES if found[key]["verdict"] == WORSE]
    others = [key for key in found if key not in (goal, *LOSSES)]
    beside = "".join(f"; {text(key)}" for key in [*others, *LOSSES] if key != goal and found[key]["verdict"] in (BETTER, WORSE))
    verdict, name = found[goal]["verdict"], QUANTITIES[goal].name
    if lost:
        return False, "; ".join([*lost, *(text(key) for key in found if key not in LOSSES and found[key]["verdict"] in (BETTER, WORSE))])
    if verdict == UNKNOWN:
        return None, f"{name}: {found[goal]['reason']}{beside}"
    if verdict == SAME:
        size = f"{difference_text(found[goal])}, " if found[goal]["difference"] else ""
        return False, f"no difference in {name}: {size}{found[goal]['reason']}{beside}"
    if verdict == WORSE:
        return False, text(goal) + beside
    if all(found[key]["verdict"] == UNKNOWN for key in LOSSES):
        return None, f"{text(goal)}; no loss is known: {found[LOSSES[0]]['reason']}{beside}"
    return True, text(goal) + beside

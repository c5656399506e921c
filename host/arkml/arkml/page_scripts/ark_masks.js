// The choices that the agents of a batch may take, as their guest masks them.

const NAME = /^mask\/(\d{1,9})\/(\d{1,9})$/;

/** Return a number rounded, halves to the even one. */
function rounded(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

/** Masks of one batch: `branches` are the numbers of choices of each of the last actions. */
export class ChoiceMasks {
  constructor(branches) {
    this.branches = branches;
    this.starts = [];
    this.choices = 0;
    for (const count of branches) {
      this.starts.push(this.choices);
      this.choices += count;
    }
  }

  /** Return masks of rows, 1 for each allowed choice, [count, choices]; null if all are allowed. */
  of(count, metadata) {
    let masks = null;
    for (const { row, name, value } of metadata) {
      const found = NAME.exec(name);
      const branch = Number(found?.[1]);
      if (!found || branch >= this.branches.length || Number(found[2]) >= this.branches[branch]) continue;
      masks ??= new Uint8Array(count * this.choices).fill(1);
      masks[row * this.choices + this.starts[branch] + Number(found[2])] = value === 0 ? 1 : 0;
    }
    return masks;
  }

  /**
   * Have the last actions of rows be choices that exist and are allowed.
   *
   * A number between two choices is rounded; one that does not exist, or is masked, becomes the
   * lowest choice that is allowed. Numbers that are not finite stay.
   */
  hold(count, actions, width, masks) {
    const first = width - this.branches.length;
    for (let row = 0; row < count; row += 1) {
      this.branches.forEach((choices, branch) => {
        const place = row * width + first + branch;
        if (!Number.isFinite(actions[place])) return;
        const near = rounded(actions[place]);
        const choice = near >= 0 && near < choices ? Math.abs(near) : 0;
        actions[place] = choice;
        if (masks === null) return;
        const start = row * this.choices + this.starts[branch];
        const allowed = masks.subarray(start, start + choices);
        const lowest = allowed.indexOf(1);
        if (allowed[choice] === 0 && lowest >= 0) actions[place] = lowest;
      });
    }
  }
}

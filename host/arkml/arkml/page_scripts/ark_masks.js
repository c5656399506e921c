// The choices that the agents of a batch may take, as their guest masks them.

const NAME = /^mask\/(\d{1,9})\/(\d{1,9})$/;

/**
 * Write what an agent takes that no policy plays: zeros, and the lowest choices that are allowed.
 *
 * `actions` are those of one row, the last of them of the branches, which have so many choices.
 * `masks` are those of a batch or null, 1 for each allowed choice; `row` is the row in it.
 */
export function rest(actions, branches, masks, row) {
  actions.fill(0);
  if (masks === null) return;
  let start = row * branches.reduce((sum, size) => sum + size, 0);
  branches.forEach((size, branch) => {
    const lowest = masks.subarray(start, start + size).indexOf(1);
    actions[actions.length - branches.length + branch] = Math.max(lowest, 0); // all are masked
    start += size;
  });
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
}

// Charts of what the processes of a hive use, since the page was open.

const MIB = 2 ** 20;

/** Return the charts of CPU, memory, disk, and GPUs if there are any. `app` has store and view. */
export function resourceSpecs(app) {
  const usage = () => app.store.usage;
  const times = () => usage().map((one) => one.at / 1e6);
  const trace = (colors, index, name, y) => {
    const color = colors.runs[index % colors.runs.length];
    const mode = y.length === 1 ? "markers" : "lines";
    return { mode, x: times(), y, name, line: { color, width: 1.6 }, marker: { color } };
  };
  const processes = (value) => (colors) =>
    ["", ...app.view.runs]
      .filter((id) => usage().some((one) => one.processes.some((each) => each.run === id)))
      .map((id, index) => {
        const y = usage().map((one) => {
          const found = one.processes.find((each) => each.run === id);
          return found ? value(found) : null;
        });
        return trace(colors, index, id ? "learner" : "hive", y);
      });
  const disk = (colors) => [trace(colors, 0, "disk", usage().map((one) => one.disk / MIB))];
  const gpus = (colors) =>
    (usage().at(-1)?.gpus ?? []).map((_, index) => {
      const y = usage().map((one) => (one.gpus[index] ? 100 * one.gpus[index].share : null));
      return trace(colors, index, `GPU ${index}`, y);
    });
  const specs = [
    { title: "CPU, % of a core", name: "usage/cpu", lines: processes((one) => 100 * one.cpu) },
    { title: "Memory, MiB", name: "usage/memory", lines: processes((one) => one.memory / MIB) },
    { title: "Disk of the hive, MiB", name: "usage/disk", lines: disk },
  ];
  if (usage().at(-1)?.gpus?.length) specs.push({ title: "GPU, % of the time", name: "usage/gpu", lines: gpus });
  return specs.map((one) => ({ ...one, fromZero: true }));
}

// Plays a published site without its page, in node or in a browser, and returns hashes of memories.

/**
 * Play frames of a site; `folder` has its files, `scripts` the modules of its page.
 *
 * `read(name)` returns the bytes of a file. A hash, SHA-256, is taken after every `every` frames.
 */
export async function played({ scripts, site, read, frames, every }) {
  const { Play } = await import(`${scripts}published_play.js`);
  const { KernelPolicy } = await import(`${scripts}kernel.js`);
  const lines = [];
  const play = await Play.begin(site, {
    module: await WebAssembly.compile(await read(site.guest.name)),
    load: async ({ name }) => KernelPolicy.load(await read(name), { seed: BigInt(site.seed), deterministic: site.deterministic }),
    game: () => ({}),
    action: () => ({ continuous: [], choices: [] }),
    write: (level, text) => lines.push([level, text]),
  });
  const hashes = [];
  for (let frame = 1; frame <= frames; frame += 1) {
    await play.frame();
    if (frame % every > 0) continue;
    const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", play.memory));
    hashes.push([...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  return { hashes, lines };
}

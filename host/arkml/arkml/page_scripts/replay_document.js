// The document of a replay, unpacked.

/**
 * Return the document in packed bytes, of a blob or an array: JSON, by gzip.
 *
 * `textOf` returns a text as it is shown, where a document comes from someone else.
 */
export async function unpackedReplay(packed, textOf = (text) => text) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const json = await new Response(stream).text();
  return JSON.parse(json, (_, value) => (typeof value === "string" ? textOf(value) : value));
}

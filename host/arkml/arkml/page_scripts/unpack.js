// Runs the script of a published page, which stands above as gzip in base64: `packed`.
// The Content-Security-Policy of the page permits that text by its hash, and no other.

(async () => {
  try {
    if (typeof DecompressionStream !== "function") throw new Error("this browser is too old for it: take one of 2023, or a newer one");
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.body.append(script);
  } catch (error) {
    document.getElementById("notice-text").textContent = `The page cannot be shown: ${error.message}.`;
  }
})();

// Links to the page: the slot and the token in the fragment of its address.

const TOKEN = "arkml.token";

/**
 * Return {slot, token} of a fragment such as "#slot=NAME&token=TOKEN".
 *
 * What is missing is an empty text. Nothing in it is trusted.
 */
export function linkIn(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  return { slot: fields.get("slot") ?? "", token: fields.get("token") ?? "" };
}

/** Return the endpoint of the server that serves a page of this origin. */
export function endpointOf(origin, token) {
  return token ? `${origin}/j/${encodeURIComponent(token)}` : origin;
}

/**
 * Return {slot, token} of the page's address, and take the token out of what is visible.
 *
 * The tab remembers the token, so that the page may be loaded again.
 */
export function takeLink(page = window) {
  const { slot, token } = linkIn(page.location.hash);
  if (token) page.sessionStorage.setItem(TOKEN, token);
  const address = page.location.pathname + (slot ? `#slot=${encodeURIComponent(slot)}` : "");
  page.history.replaceState(null, "", address);
  return { slot, token: token || (page.sessionStorage.getItem(TOKEN) ?? "") };
}

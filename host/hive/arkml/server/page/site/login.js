// The form that trades a token for a session; the page never keeps the token.

import { change, get } from "./api.js";
import { byId, setShown, setText } from "./dom.js";

/** Log in with a token; throws ApiError. */
export async function logIn(token) {
  await change("POST", "login", { token });
}

/** End the session of this browser; throws ApiError. */
export async function logOut() {
  await change("POST", "logout");
}

/** Return the name and the role of the one who looks, null for one who has to log in; throws ApiError. */
export async function whoAmI() {
  try {
    return await get("v1/whoami");
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

/** Show the form until a login succeeds. */
export function askForToken(reason = "") {
  const [form, input, trouble] = ["login", "token", "login-trouble"].map(byId);
  setShown(form, true);
  setText(trouble, reason);
  input.focus();
  return new Promise((resolve) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      const token = input.value.trim();
      try {
        await logIn(token);
      } catch (error) {
        setText(trouble, error.message);
        input.select();
        return;
      }
      input.value = "";
      setShown(form, false);
      resolve();
    };
  });
}

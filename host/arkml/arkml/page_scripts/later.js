// Work that is done at once, or when a promise is kept: a page of onnxruntime-web waits for its answers.

/** Call `next` with a value, or with what a promise of it brings. */
export function after(value, next) {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** Do work, and call `end` when it is done, also where it fails. */
export function ending(work, end) {
  let value = null;
  try {
    value = work();
  } catch (error) {
    end();
    throw error;
  }
  if (value instanceof Promise) return value.finally(end);
  end();
  return value;
}

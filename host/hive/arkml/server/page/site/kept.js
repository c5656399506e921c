// Answers of the hive that stay good for a while.

/**
 * Return a function that gives the answer of `ask`, and asks again only after `every` milliseconds.
 *
 * While the hive refuses or does not answer, it gives the last answer: null before the first one.
 */
export function kept(ask, every, now = () => performance.now()) {
  let asked = -Infinity;
  let answer = Promise.resolve(null);
  return () => {
    if (now() - asked < every) return answer;
    asked = now();
    const before = answer;
    answer = ask().catch((error) => {
      if (error.status === undefined) throw error;
      return before;
    });
    return answer;
  };
}

// SHAKE128 (FIPS 202): random bytes of a seed, and the digest of a file.

const RATE = 168; // bytes
const ROTATIONS = [1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44];
const LANES = [10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1];

/** The constants of the 24 rounds as pairs of 32 bits, low first, by their linear register. */
const CONSTANTS = (() => {
  const pairs = new Int32Array(48);
  let register = 1;
  for (let round = 0; round < 24; round += 1) {
    for (let bit = 0; bit < 7; bit += 1) {
      const place = (1 << bit) - 1;
      if (register & 1) pairs[2 * round + (place >> 5)] ^= 1 << (place & 31);
      register = (register << 1) ^ (register & 0x80 ? 0x171 : 0);
    }
  }
  return pairs;
})();

/** Permute a state of 25 lanes, pairs of 32 bits. */
function permute(state) {
  const parity = new Int32Array(10);
  for (let round = 0; round < 24; round += 1) {
    for (let at = 0; at < 10; at += 1) {
      parity[at] = state[at] ^ state[at + 10] ^ state[at + 20] ^ state[at + 30] ^ state[at + 40];
    }
    for (let x = 0; x < 5; x += 1) {
      const [before, after] = [2 * ((x + 4) % 5), 2 * ((x + 1) % 5)];
      const low = parity[before] ^ ((parity[after] << 1) | (parity[after + 1] >>> 31));
      const high = parity[before + 1] ^ ((parity[after + 1] << 1) | (parity[after] >>> 31));
      for (let at = 2 * x; at < 50; at += 10) {
        state[at] ^= low;
        state[at + 1] ^= high;
      }
    }
    let [low, high] = [state[2], state[3]];
    for (let step = 0; step < 24; step += 1) {
      const at = 2 * LANES[step];
      const turn = ROTATIONS[step] & 31;
      const [one, other] = ROTATIONS[step] < 32 ? [low, high] : [high, low];
      [low, high] = [state[at], state[at + 1]];
      state[at] = turn === 0 ? one : (one << turn) | (other >>> (32 - turn));
      state[at + 1] = turn === 0 ? other : (other << turn) | (one >>> (32 - turn));
    }
    for (let row = 0; row < 50; row += 10) {
      for (let half = 0; half < 2; half += 1) {
        const at = row + half;
        const [a, b, c, d, e] = [state[at], state[at + 2], state[at + 4], state[at + 6], state[at + 8]];
        state[at] = a ^ (~b & c);
        state[at + 2] = b ^ (~c & d);
        state[at + 4] = c ^ (~d & e);
        state[at + 6] = d ^ (~e & a);
        state[at + 8] = e ^ (~a & b);
      }
    }
    state[0] ^= CONSTANTS[2 * round];
    state[1] ^= CONSTANTS[2 * round + 1];
  }
}

/** Return the first `size` bytes of the SHAKE128 of bytes. */
export function shake128(data, size) {
  const state = new Int32Array(50);
  const bytes = new Uint8Array(state.buffer); // of a machine that is little-endian, as wasm asks for
  let start = 0;
  for (; start + RATE <= data.length; start += RATE) {
    for (let at = 0; at < RATE; at += 1) bytes[at] ^= data[start + at];
    permute(state);
  }
  for (let at = start; at < data.length; at += 1) bytes[at - start] ^= data[at];
  bytes[data.length - start] ^= 0x1f;
  bytes[RATE - 1] ^= 0x80;
  const out = new Uint8Array(size);
  for (let at = 0; at < size; at += RATE) {
    permute(state);
    out.set(bytes.subarray(0, Math.min(RATE, size - at)), at);
  }
  return out;
}

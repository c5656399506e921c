// Sounds of a game, made by the browser: off until a person turns them on.

import { setText } from "./dom.js";

const LOUDNESS = 0.12; // of 1
const TICK = [[880, 0, 0.07]]; // Hertz, and seconds of its beginning and its length
const CHIME = [[660, 0, 0.25], [880, 0.12, 0.25], [1_320, 0.24, 0.4]];
const END = [[440, 0, 0.25], [330, 0.14, 0.35]];

/** Plays sounds while a button is pressed that says so. */
export class Sound {
  #button;
  #context = null;
  #isOn = false;

  constructor(button) {
    this.#button = button;
    button.addEventListener("click", () => this.#turn(!this.#isOn));
    this.#turn(false);
  }

  /** A reward that stands out. */
  tick() {
    this.#play(TICK);
  }

  /** The end of an episode; of the best one of today another sound. */
  end(isBest) {
    this.#play(isBest ? CHIME : END);
  }

  #turn(isOn) {
    this.#isOn = isOn;
    setText(this.#button, isOn ? "Sound is on" : "Sound is off");
    this.#button.setAttribute("aria-pressed", String(isOn));
    if (!isOn) return;
    this.#context ??= new AudioContext();
    void this.#context.resume();
    this.tick();
  }

  #play(notes) {
    if (!this.#isOn) return;
    const context = this.#context;
    for (const [pitch, start, length] of notes) {
      const [tone, volume] = [context.createOscillator(), context.createGain()];
      const begins = context.currentTime + start;
      tone.frequency.value = pitch;
      volume.gain.setValueAtTime(LOUDNESS, begins);
      volume.gain.exponentialRampToValueAtTime(0.001, begins + length);
      tone.connect(volume).connect(context.destination);
      tone.start(begins);
      tone.stop(begins + length);
    }
  }
}

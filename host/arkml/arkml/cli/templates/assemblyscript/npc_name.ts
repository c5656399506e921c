// An NPC that learns to run to its target and to stay there.
import { Agent, Game, play, within } from "guest_abi/assemblyscript/arkml_guest";
export {
  ARK_API_ML, ark_applet_update, ark_initialize, arkml_seed, configure, episodes, frames, mean_return,
  mode, status,
} from "guest_abi/assemblyscript/arkml_guest"; // what the host calls

class Npc extends Agent {
  private distance: f64 = 0; // to the target
  private speed: f64 = 0;

  place(): void {
    this.distance = this.randomNumber();
  }

  /** The observation: where the target is, and how fast the NPC runs there. */
  observe(features: StaticArray<f32>): void {
    features[0] = <f32>this.distance;
    features[1] = <f32>this.speed;
  }

  /** The action: how fast to run, and where, from -1 to 1. The reward: minus the distance. */
  move(actions: StaticArray<f32>): bool {
    this.speed += 0.3 * (within(actions[0]) - this.speed);
    this.distance -= 0.1 * this.speed;
    this.reward = <f32>-Math.abs(this.distance);
    return false;
  }
}

// Two features, one action, 16 NPCs, episodes of 50 steps.
play(new Game("npc_name", 2, 1, 16, 50), (): Agent => new Npc());

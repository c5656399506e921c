//! An NPC that learns to run to its target and to stay there.

use arkml_guest::{guest, within, Game, Random, Step};

struct Npc {
    distance: f64, // to the target
    speed: f64,
}

impl Game<2, 1> for Npc {
    const NAME: &'static str = "npc_name";
    const EPISODE: u32 = 50;

    fn place(random: &mut Random) -> Self {
        Npc { distance: random.number(), speed: 0.0 }
    }

    /// The observation: where the target is, and how fast the NPC runs there.
    fn observe(&self) -> [f32; 2] {
        [self.distance as f32, self.speed as f32]
    }

    /// The action: how fast to run, and where, from -1 to 1. The reward: minus the distance.
    fn step(&mut self, [wanted]: [f32; 1], _: &mut Random) -> Step {
        self.speed += 0.3 * (within(wanted) - self.speed);
        self.distance -= 0.1 * self.speed;
        Step { reward: -self.distance.abs() as f32, has_ended: false }
    }
}

guest!(Npc, features = 2, actions = 1, agents = 16, spec = "spec.json");

//! An NPC that learns to run to its target and to stay there.
const arkml = @import("build/arkml_guest.zig"); // made by the Makefile

comptime {
    asm (
        \\.section .custom_section.arkml.spec,"",@
        \\.incbin "spec.json"
    );
}

const distance = 0; // of an agent's body
const speed = 1;

// agent[0] is agent.*, of which Zig 0.16.0 mistakes the arrays.
fn place(agent: [*c]arkml.Agent) callconv(.c) void {
    agent[0].body[distance] = arkml.random_number(agent);
}

/// The observation: where the target is, and how fast the NPC runs there.
fn observe(agent: [*c]const arkml.Agent, features: [*c]f32) callconv(.c) void {
    features[0] = @floatCast(agent[0].body[distance]);
    features[1] = @floatCast(agent[0].body[speed]);
}

/// The action: how fast to run, and where, from -1 to 1. The reward: minus the distance.
fn move(agent: [*c]arkml.Agent, actions: [*c]const f32) callconv(.c) bool {
    agent[0].body[speed] += 0.3 * (arkml.within(actions[0]) - agent[0].body[speed]);
    agent[0].body[distance] -= 0.1 * agent[0].body[speed];
    agent[0].reward = @floatCast(-@abs(agent[0].body[distance]));
    return false; // true ends the episode
}

export const GAME: arkml.Game = .{
    .name = .{ .bytes = "npc_name", .length = "npc_name".len },
    .features = 2,
    .actions = 1,
    .agents = 16,
    .episode = 50, // steps
    .place = place,
    .observe = observe,
    .move = move,
};

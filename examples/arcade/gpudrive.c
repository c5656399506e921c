/* GPUDrive: cars on a recorded crossing, the one map of the archive, for 91 steps. */
#include <stdio.h>
#include <string.h>

#ifdef __wasm__
#define MAP_SECTION ".section .rodata.drive_map,\"\",@\n"
#else
#define MAP_SECTION ".section .rodata.drive_map,\"a\",@progbits\n"
#endif
__asm__(MAP_SECTION ".globl drive_map\n.type drive_map,@object\ndrive_map:\n"
                    ".incbin \"gpudrive/map_942.bin\"\n.size drive_map, 304012\n.text\n");
extern const unsigned char drive_map[];
static const unsigned char *map_at; /* what is read next */

#define fopen(path, mode) (map_at = drive_map, (FILE *)1)
#define fread(to, size, count, file)                                                              \
    (memcpy(to, map_at, (size) * (size_t)(count)), map_at += (size) * (size_t)(count))
#define fclose(file) ((void)(file))

#define GAME_HEADER "gpudrive/gpudrive.h"
#define GAME_TYPE GPUDrive
#define GAME_NAME "gpudrive"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 1847
#define GAME_BRANCHES 7, 13
#define GAME_PARTS \
    {"name": "self", "shape": [6]}, {"name": "cars", "shape": [63, 7]}, \
    {"name": "roads", "shape": [200, 7]}
#define GAME_SCORES                                                                               \
    SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) SCORE(offroad_rate)       \
    SCORE(collision_rate) SCORE(clean_collision_rate) SCORE(completion_rate) SCORE(dnf_rate)
#define GAME_AGENTS 14 /* that the map has */
#define GAME_TRUNCATED(copy, agent) ((copy)->env.timestep == 0)
#define GAME_COPIES 8 /* each reads the map, and few fit */
#include "ocean.h"

static void set_up(GPUDrive *env) {
    env->num_agents = GAME_AGENTS;
    env->reward_vehicle_collision = -0.5f;
    env->reward_offroad_collision = -0.2f;
    env->reward_goal_post_respawn = 0.25f;
    env->reward_vehicle_collision_post_respawn = -0.5f;
    env->spawn_immunity_timer = 50;
    env->map_name = "";
    init(env);
    if (env->active_agent_count != GAME_AGENTS) {
        __builtin_trap();
    }
}

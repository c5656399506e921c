//! A guest in Rust that learns: all but its game. Needs Rust 1.63, and `std`.
//!
//! A game implements [`Game`] and names itself to [`guest!`], which exports what the host calls.
//! This file starts the run, pushes the rows of all agents, submits, applies the answers and begins
//! new episodes. Until the run has begun, the game stands still. Without a hive it is played with
//! `Game::POLICY` or, where that is not given, a policy that answers zeros; the host may put another
//! in its place: `arkml run GUEST --policy FILE`.
//!
//! Random numbers depend on the seed and the agent's id only, so that an episode does not depend on
//! the number of agents.

pub mod ark_abi;
mod ark_idle_policy;

use ark_abi::{core_v2, core_v3, ml_v1, ml_v3, EpisodeState, ErrorCode, FutureHandle};
use ark_abi::{InferenceHandle, LogLevel, PollSimple, SnapshotFormat, TrainingHandle};

/// Episodes in a mean, and from one report in the log to the next.
const SCORES: usize = 100;
const MAX_AGENTS: u32 = 65_536; // rows of a submit
const LONGEST_RUN: u64 = 24 * 60 * 60; // seconds

/// Id of the API that a guest needs; the host reads it before it starts the guest.
pub const NEWEST_API: u64 = ml_v3::ID;

/// One agent in its episode.
pub trait Game<const FEATURES: usize, const ACTIONS: usize>: Sized {
    /// The name of the run.
    const NAME: &'static str;
    /// Steps after which an episode is interrupted.
    const EPISODE: u32;
    /// JSON; the object under "arkml" is for the hive.
    const CONFIGURATION: &'static str = "{}";
    /// ONNX that acts without a hive, instead of zeros.
    const POLICY: Option<&'static [u8]> = None;

    /// Begin an episode.
    fn place(random: &mut Random) -> Self;
    /// Return the features of a row.
    fn observe(&self) -> [f32; FEATURES];
    /// Move by the answer to the row.
    fn step(&mut self, actions: [f32; ACTIONS], random: &mut Random) -> Step;
}

/// What a step has earned, and whether it has ended the episode.
pub struct Step {
    pub reward: f32,
    pub has_ended: bool,
}

/// Random numbers of an agent.
pub struct Random(u64);

impl Random {
    /// Return a number, uniform in [-1, 1).
    pub fn number(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        ((z ^ (z >> 31)) >> 11) as f64 * (1.0 / 4503599627370496.0) - 1.0
    }
}

/// Return an action, clamped to [-1, 1].
pub fn within(action: f32) -> f64 {
    f64::from(action).max(-1.0).min(1.0)
}

/// The part of a row that a guest declares with the kind "entities": the number of those that are
/// there, then room for some of them, of `WIDTH` features each.
pub struct Entities<'a, const WIDTH: usize> {
    count: &'a mut f32,
    free: std::slice::ChunksExactMut<'a, f32>,
}

impl<'a, const WIDTH: usize> Entities<'a, WIDTH> {
    /// Begin the part without an entity: all of it becomes zeros.
    ///
    /// Panics unless it has the length 1 + entities * `WIDTH`.
    pub fn new(part: &'a mut [f32]) -> Self {
        let length = part.len();
        part.fill(0.0);
        match part.split_first_mut() {
            Some((count, rest)) if rest.len() % WIDTH == 0 => {
                Entities { count, free: rest.chunks_exact_mut(WIDTH) }
            }
            _ => panic!("{length} features are not 1 and some entities of {WIDTH}"),
        }
    }

    /// Add an entity, or leave it out and return false if there is no room.
    pub fn add(&mut self, features: [f32; WIDTH]) -> bool {
        match self.free.next() {
            Some(place) => {
                place.copy_from_slice(&features);
                *self.count += 1.0;
                true
            }
            None => false,
        }
    }
}

/// Write a line to the log of the host.
pub fn log(level: LogLevel, text: &str) {
    unsafe { core_v3::log(level.0, text.as_ptr(), text.len() as u32) };
}

/// Have panics told to the host, which shows them where the guest's call ends.
pub fn register_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = match payload.downcast_ref::<String>() {
            Some(formatted) => formatted,
            None => payload.downcast_ref::<&str>().copied().unwrap_or("panic"),
        };
        let (file, line, column) =
            panic.location().map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
        let (text, length) = (message.as_ptr(), message.len() as u32);
        unsafe {
            core_v2::register_panic(text, length, file.as_ptr(), file.len() as u32, line, column);
        }
    }));
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Waiting,
    Training(TrainingHandle),
    Playing(InferenceHandle),
}

struct Agent<G> {
    id: u64,
    random: Random,
    state: EpisodeState,
    steps: u32,
    reward: f32,
    total: f64,
    game: G,
}

impl<G> Agent<G> {
    fn step<const F: usize, const A: usize>(&mut self, actions: [f32; A])
    where
        G: Game<F, A>,
    {
        let step = self.game.step(actions, &mut self.random);
        self.reward = step.reward;
        self.total += f64::from(step.reward);
        self.steps += 1;
        self.state = match step.has_ended {
            true => EpisodeState::TERMINAL,
            false if self.steps >= G::EPISODE => EpisodeState::INTERRUPTED,
            false => EpisodeState::RUNNING,
        };
    }

    fn is_over(&self) -> bool {
        self.state == EpisodeState::TERMINAL || self.state == EpisodeState::INTERRUPTED
    }
}

/// All agents of a guest; [`guest!`] makes it.
pub struct World<G, const F: usize, const A: usize> {
    agents: Vec<Agent<G>>,
    returns: Vec<f64>,
    seed: u64,
    next_id: u64,
    mode: Mode,
    starting: FutureHandle,
    /// The code of the import that failed.
    pub failure: ErrorCode,
    pub frames: u32,
    pub episodes: u32,
}

impl<G: Game<F, A>, const F: usize, const A: usize> World<G, F, A> {
    /// Return a world without agents.
    pub const fn new() -> Self {
        World {
            agents: Vec::new(),
            returns: Vec::new(),
            seed: 0,
            next_id: 1,
            mode: Mode::Waiting,
            starting: FutureHandle(0),
            failure: ErrorCode::SUCCESS,
            frames: 0,
            episodes: 0,
        }
    }

    pub fn set_seed(&mut self, seed: u32) {
        self.seed = u64::from(seed);
    }

    /// Start over with `agents`. May be called at any time, also before `initialize`.
    pub fn configure(&mut self, agents: u32, seed: u32) -> ErrorCode {
        if agents == 0 || agents > MAX_AGENTS {
            return ErrorCode::INVALID_ARGUMENTS;
        }
        self.set_seed(seed);
        (self.frames, self.episodes) = (0, 0);
        self.returns.clear();
        self.agents = (0..agents).map(|_| self.spawn()).collect();
        ErrorCode::SUCCESS
    }

    /// Start the run, with `agents` unless another number was configured.
    pub fn initialize(&mut self, agents: u32) {
        if self.agents.is_empty() {
            self.agents = (0..agents).map(|_| self.spawn()).collect();
        }
        let (name, length) = (G::NAME.as_ptr(), G::NAME.len() as u32);
        let (configuration, hive) = (G::CONFIGURATION, "localhost");
        let code = unsafe {
            ml_v3::start_training(
                hive.as_ptr(),
                hive.len() as u32,
                12356,
                name,
                length,
                name,
                length,
                F as u32,
                A as u32,
                0,
                configuration.as_ptr(),
                configuration.len() as u32,
                "".as_ptr(),
                0,
                LONGEST_RUN,
                &mut self.starting,
            )
        };
        match code {
            ErrorCode::SUCCESS => {}
            ErrorCode::UNAVAILABLE | ErrorCode::API_NOT_AVAILABLE => {
                log(LogLevel::INFO, &format!("start_training answered {}: playing", code.0));
                self.play();
            }
            _ => self.fail("start_training", code),
        }
    }

    /// Play one frame.
    pub fn update(&mut self) {
        if self.failure == ErrorCode::SUCCESS && self.mode == Mode::Waiting {
            self.await_training();
        }
        if self.failure != ErrorCode::SUCCESS || self.mode == Mode::Waiting {
            return;
        }
        let actions = match self.answer() {
            Ok(actions) => actions,
            Err((what, code)) => return self.fail(what, code),
        };
        self.frames += 1;
        let before = self.episodes as usize / SCORES;
        for (place, actions) in actions.into_iter().enumerate() {
            let agent = &mut self.agents[place];
            if agent.is_over() {
                let total = agent.total;
                self.returns.push(total);
                self.episodes += 1;
                self.agents[place] = self.spawn();
            } else {
                agent.step(actions);
            }
        }
        self.returns.drain(..self.returns.len().saturating_sub(SCORES));
        if self.episodes as usize / SCORES != before {
            let (frames, episodes, mean) = (self.frames, self.episodes, self.mean_return());
            let text = format!("frame {frames}: {episodes} episodes, mean return {mean:.2}");
            log(LogLevel::INFO, &text);
        }
    }

    /// Return the mean return of the last hundred episodes.
    pub fn mean_return(&self) -> f32 {
        (self.returns.iter().sum::<f64>() / self.returns.len().max(1) as f64) as f32
    }

    /// Return 0 while the run starts, 1 while it trains, 2 without a run.
    pub fn mode(&self) -> u32 {
        match self.mode {
            Mode::Waiting => 0,
            Mode::Training(_) => 1,
            Mode::Playing(_) => 2,
        }
    }

    fn spawn(&mut self) -> Agent<G> {
        let id = self.next_id;
        self.next_id += 1;
        let mut random = Random(self.seed << 32 ^ id.wrapping_mul(0xd1342543de82ef95));
        let game = G::place(&mut random);
        let state = EpisodeState::INITIAL;
        Agent { id, random, state, steps: 0, reward: 0.0, total: 0.0, game }
    }

    fn fail(&mut self, what: &str, code: ErrorCode) {
        self.failure = code;
        log(LogLevel::ERROR, &format!("{what} answered {}: the game stands still", code.0));
    }

    /// Without a run the game is played with its own policy, or with the host's in its place.
    fn play(&mut self) {
        let mut session = InferenceHandle(0);
        let idle = idle_policy(F, A);
        let policy = G::POLICY.unwrap_or(&idle);
        let (data, length) = (policy.as_ptr(), policy.len() as u32);
        let format = SnapshotFormat::ONNX;
        let code = unsafe {
            ml_v1::start_inference(F as u32, A as u32, data, length, format, &mut session)
        };
        self.mode = Mode::Playing(session);
        if code != ErrorCode::SUCCESS {
            self.fail("start_inference", code);
        }
    }

    /// Check whether the run has started; if its start failed, play without it.
    fn await_training(&mut self) {
        let mut poll = PollSimple { ready: false };
        let mut training = TrainingHandle(0);
        let mut code = unsafe { ml_v1::poll_future_training_handle(self.starting, &mut poll) };
        if code == ErrorCode::SUCCESS {
            if !poll.ready {
                return;
            }
            code = unsafe { ml_v1::take_future_training_handle(self.starting, &mut training) };
        }
        if code == ErrorCode::SUCCESS {
            self.mode = Mode::Training(training);
        } else {
            log(LogLevel::WARN, &format!("the run answered {}: playing", code.0));
            self.play();
        }
    }

    /// Push the rows of all agents, submit, and return the actions of each.
    fn answer(&self) -> Result<Vec<[f32; A]>, (&'static str, ErrorCode)> {
        for agent in &self.agents {
            let code = self.push(agent);
            if code != ErrorCode::SUCCESS {
                return Err(("pushing an observation", code));
            }
        }
        let mut actions = vec![[0.0; A]; self.agents.len()];
        let mut values = vec![0.0; self.agents.len()];
        let (wanted, rows) = ((values.len() * A) as u32, values.len() as u32);
        let (room, values) = (actions.as_mut_ptr().cast(), values.as_mut_ptr());
        let code = unsafe {
            match self.mode {
                Mode::Training(session) => {
                    ml_v1::submit_training_observations(session, room, wanted, values, rows)
                }
                Mode::Playing(session) => {
                    ml_v1::submit_inference_observations(session, room, wanted, values, rows)
                }
                Mode::Waiting => ErrorCode::UNAVAILABLE,
            }
        };
        match code {
            ErrorCode::SUCCESS => Ok(actions),
            _ => Err(("submitting observations", code)),
        }
    }

    fn push(&self, agent: &Agent<G>) -> ErrorCode {
        let features = agent.game.observe();
        let (row, width) = (features.as_ptr(), F as u32);
        let (id, state, reward) = (agent.id, agent.state, agent.reward);
        unsafe {
            match self.mode {
                Mode::Training(session) => ml_v1::push_training_observation(
                    session, id, state, reward, row, width, std::ptr::null(), 0, 1.0,
                ),
                Mode::Playing(session) => {
                    ml_v1::push_inference_observation(session, id, state, reward, row, width, 1.0)
                }
                Mode::Waiting => ErrorCode::UNAVAILABLE,
            }
        }
    }
}

/// Return the model of a policy that answers zeros to rows of these widths, up to 65,536.
fn idle_policy(features: usize, actions: usize) -> [u8; ark_idle_policy::MODEL.len()] {
    let mut model = ark_idle_policy::MODEL;
    let widths = [(ark_idle_policy::FEATURES, features), (ark_idle_policy::ACTIONS, actions)];
    for ([number, varint], width) in widths {
        model[number..number + 4].copy_from_slice(&(width as u32).to_le_bytes());
        model[varint] = (width | 0x80) as u8;
        model[varint + 1] = (width >> 7 | 0x80) as u8;
        model[varint + 2] = (width >> 14 & 0x7f) as u8;
    }
    model
}

/// Export what the host calls:
/// `guest!(Npc, features = 2, actions = 1, agents = 16, spec = "spec.json");`.
///
/// The file declares the meaning of rows, in JSON; the host looks for it in the module. In its
/// place, `spec_text = br#"{"behaviors": ...}"#` has the JSON itself.
#[macro_export]
macro_rules! guest {
    (@ $game:ty, $features:literal, $actions:literal, $agents:literal, $spec:expr) => {
        static mut WORLD: $crate::World<$game, $features, $actions> = $crate::World::new();

        fn world() -> &'static mut $crate::World<$game, $features, $actions> {
            unsafe { &mut *std::ptr::addr_of_mut!(WORLD) }
        }

        #[no_mangle]
        pub static ARK_API_ML: u64 = $crate::NEWEST_API;

        #[cfg(target_arch = "wasm32")]
        #[link_section = "arkml.spec"]
        #[used]
        static SPEC: [u8; $spec.len()] = *$spec;

        #[no_mangle]
        pub extern "C" fn ark_register_panic_hook() {
            $crate::register_panics();
        }

        #[no_mangle]
        pub extern "C" fn arkml_seed(seed: u64) {
            world().set_seed(seed as u32);
        }

        #[no_mangle]
        pub extern "C" fn configure(agents: u32, seed: u32) -> u32 {
            world().configure(agents, seed).0
        }

        #[no_mangle]
        pub extern "C" fn ark_initialize() {
            world().initialize($agents);
        }

        #[no_mangle]
        pub extern "C" fn ark_applet_update() {
            world().update();
        }

        /// 0, or the code of the import that failed.
        #[no_mangle]
        pub extern "C" fn status() -> u32 {
            world().failure.0
        }

        /// 0 while the run starts, 1 while it trains, 2 without a run.
        #[no_mangle]
        pub extern "C" fn mode() -> u32 {
            world().mode()
        }

        #[no_mangle]
        pub extern "C" fn frames() -> u32 {
            world().frames
        }

        #[no_mangle]
        pub extern "C" fn episodes() -> u32 {
            world().episodes
        }

        #[no_mangle]
        pub extern "C" fn mean_return() -> f32 {
            world().mean_return()
        }
    };
    ($game:ty, features = $features:literal, actions = $actions:literal, agents = $agents:literal,
     spec = $spec:literal) => {
        $crate::guest!(@ $game, $features, $actions, $agents, include_bytes!($spec));
    };
    ($game:ty, features = $features:literal, actions = $actions:literal, agents = $agents:literal,
     spec_text = $spec:literal) => {
        $crate::guest!(@ $game, $features, $actions, $agents, $spec);
    };
}

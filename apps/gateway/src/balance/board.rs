//! Which backends are up: what their checks say, and the tables of those that are.
//!
//! One thread asks all backends of a configuration, over sockets that do not wait, by way of the
//! kernel and the gateway's host interfaces. Where a backend goes up or down it makes other
//! [`Tables`]; control hands them to the workers ([`Board::changed`]), so that a worker neither
//! locks nor waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};

use super::check::{Check, Probe};
use super::{Backend, Numbered, Service, Tables};

/// The longest that the thread waits before it looks whether it is to end.
const LONGEST: Duration = Duration::from_millis(200);

/// What the checks of a backend say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it gets new flows, its weight aside.
    pub is_up: bool,
    /// Whether it has ever answered as it should.
    pub was_up: bool,
    /// How many answers in a row were as the last one.
    pub run: u32,
    /// When that came, and why it was wrong; `None`: nobody has asked.
    pub last: Option<(Instant, Result<(), String>)>,
}

impl Default for Standing {
    /// Up, until the first answer says otherwise.
    fn default() -> Self {
        Self {
            is_up: true,
            was_up: false,
            run: 0,
            last: None,
        }
    }
}

impl Standing {
    /// Takes an answer; whether it is now up that was down, or down that was up.
    fn answered(&mut self, check: &Check, now: Instant, answer: Result<(), String>) -> bool {
        let is_right = answer.is_ok();
        let is_same = (self.last.as_ref()).is_some_and(|(_, last)| last.is_ok() == is_right);
        self.run = if is_same {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some((now, answer));
        // Nothing is known yet: one answer decides. Checks may begin before the way there is.
        let enough = match (is_right, self.was_up) {
            (_, false) => 1,
            (true, true) => check.rise,
            (false, true) => check.fall,
        };
        self.was_up |= is_right;
        let turns = is_right != self.is_up && self.run >= u32::from(enough);
        self.is_up ^= turns;
        turns
    }
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    standings: Vec<Standing>,
    tables: Arc<Tables>,
    /// Whether workers may have others.
    has_changed: bool,
    lines: Vec<String>,
}

/// The backends of one configuration.
#[derive(Debug, Default)]
pub struct Board {
    known: Arc<Numbered>,
    state: Mutex<State>,
    is_over: AtomicBool,
}

/// Who is asked what.
struct Job {
    number: u16,
    to: SocketAddr,
    check: Check,
    /// When to ask next; while it is asked, when that began.
    due: Instant,
    probe: Option<Probe>,
    name: String,
}

impl Board {
    /// That of numbered backends; those that `old` has stay as they are. Begins to ask them.
    pub(super) fn new(known: &Arc<Numbered>, old: Option<&Self>) -> Arc<Self> {
        let before = old
            .map(|old| old.state().standings.clone())
            .unwrap_or_default();
        let mut standings = vec![Standing::default(); known.end()];
        let backends = known.backends();
        for (.., number) in backends.filter(|(service, ..)| service.check.is_some()) {
            if let Some(standing) = before.get(usize::from(number)) {
                standings[usize::from(number)] = standing.clone();
            }
        }
        let is_up = |number: u16| standings[usize::from(number)].is_up;
        let tables = Arc::new(Tables::new(known, is_up, None));
        let board = Arc::new(Self {
            known: known.clone(),
            state: Mutex::new(State {
                standings,
                tables,
                ..State::default()
            }),
            is_over: AtomicBool::new(false),
        });
        let jobs = board.jobs();
        if !jobs.is_empty() {
            let asked = board.clone();
            let thread = std::thread::Builder::new().name("checks".into());
            if let Err(error) = thread.spawn(move || asked.ask(jobs)) {
                let line = format!("backends are not checked, and all count as up: {error}");
                board.state().lines.push(line);
            }
        }
        board
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables of those that are up now.
    pub fn tables(&self) -> Arc<Tables> {
        self.state().tables.clone()
    }

    /// The tables, if workers have not been given these yet: from here on they count as given.
    pub fn changed(&self) -> Option<Arc<Tables>> {
        let mut state = self.state();
        std::mem::take(&mut state.has_changed).then(|| state.tables.clone())
    }

    /// Which backends went up and down since this was asked last.
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state().lines)
    }

    /// What is known of a backend, by its number.
    pub fn standing(&self, number: u16) -> Standing {
        let state = self.state();
        let standing = state.standings.get(usize::from(number));
        standing.cloned().unwrap_or_default()
    }

    /// Asks no more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn jobs(&self) -> Vec<Job> {
        let job = |(service, backend, number): (&Service, &Backend, u16)| {
            Some(Job {
                number,
                to: SocketAddr::new(backend.address, service.check_port(backend)),
                check: service.check.clone()?,
                due: Instant::now(),
                probe: None,
                name: format!("balancer {}: backend {backend}", service.name),
            })
        };
        self.known.backends().filter_map(job).collect()
    }

    /// Takes an answer; another state of the backend is told, and makes other tables.
    fn answered(&self, job: &Job, now: Instant, answer: Result<(), String>) {
        let mut state = self.state();
        let Some(standing) = state.standings.get_mut(usize::from(job.number)) else {
            return;
        };
        let line = match &answer {
            Ok(()) => format!("{} is up", job.name),
            Err(why) => format!("{} is down: {why}", job.name),
        };
        if !standing.answered(&job.check, now, answer) {
            return;
        }
        let standings = &state.standings;
        let is_up = |number: u16| standings[usize::from(number)].is_up;
        let tables = Tables::new(&self.known, is_up, Some(&state.tables));
        state.tables = Arc::new(tables);
        state.has_changed = true;
        state.lines.push(line);
    }

    /// The thread: asks all, each in its interval.
    fn ask(&self, mut jobs: Vec<Job>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            for job in jobs
                .iter_mut()
                .filter(|job| job.probe.is_none() && job.due <= now)
            {
                job.due = now;
                match Probe::begin(job.to) {
                    Ok(probe) => job.probe = Some(probe),
                    Err(why) => self.ends(job, now, Err(why)),
                }
            }
            self.wait(&mut jobs);
            let now = Instant::now();
            for job in &mut jobs {
                let limit = Duration::from_millis(job.check.timeout_ms.into());
                if job.probe.is_some() && now >= job.due + limit {
                    let why = format!("no answer within {} ms", job.check.timeout_ms);
                    self.ends(job, now, Err(why));
                }
            }
        }
    }

    /// Waits until a socket is ready or something is due, and goes on with what is ready.
    fn wait(&self, jobs: &mut [Job]) {
        let now = Instant::now();
        let due = |job: &Job| match job.probe {
            Some(_) => job.due + Duration::from_millis(job.check.timeout_ms.into()),
            None => job.due,
        };
        let first = jobs.iter().map(due).min();
        let most = first.map_or(LONGEST, |first| first.saturating_duration_since(now));
        let most = most.min(LONGEST);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: most.subsec_nanos().into(),
        };
        let asked = |job: &&Job| job.probe.is_some();
        let mut polled: Vec<PollFd<'_>> = (jobs.iter().filter(asked))
            .filter_map(|job| job.probe.as_ref())
            .map(|probe| PollFd::from_borrowed_fd(probe.socket(), probe.awaits()))
            .collect();
        if poll(&mut polled, Some(&timeout)).is_err() {
            return;
        }
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        drop(polled);
        let now = Instant::now();
        let asked = jobs.iter_mut().filter(|job| job.probe.is_some());
        for (job, _) in asked.zip(ready).filter(|(_, ready)| *ready) {
            let (kind, to) = (&job.check.kind, job.to);
            let answer = job.probe.as_mut().and_then(|probe| probe.go_on(kind, to));
            if let Some(answer) = answer {
                self.ends(job, now, answer);
            }
        }
    }

    /// A question has its answer: the next one is due an interval after it began.
    fn ends(&self, job: &mut Job, now: Instant, answer: Result<(), String>) {
        job.probe = None;
        job.due = (job.due + Duration::from_millis(job.check.interval_ms.into())).max(now);
        self.answered(job, now, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Kind;
    use super::super::{Balance, Config, Form};
    use super::*;
    use linerate_testkit::wait;
    use std::net::TcpListener;

    fn check(rise: u16, fall: u16) -> Check {
        Check {
            kind: Kind::Tcp,
            port: None,
            interval_ms: 20,
            timeout_ms: 1000,
            rise,
            fall,
        }
    }

    #[test]
    fn a_backend_turns_after_as_many_answers_as_the_file_says() {
        let (check, now) = (check(2, 3), Instant::now());
        let wrong = || Err("refused".to_string());
        let mut standing = Standing::default();
        let mut turns = |answers: &[bool]| -> Vec<bool> {
            let answer = |right: &bool| if *right { Ok(()) } else { wrong() };
            let answers = answers.iter();
            answers
                .map(|right| standing.answered(&check, now, answer(right)))
                .collect()
        };
        assert_eq!(turns(&[true, false, false, true]), [false; 4]);
        assert_eq!(turns(&[false, false, false]), [false, false, true]);
        assert_eq!(
            turns(&[true, false, true, true]),
            [false, false, false, true]
        );
        // The first answer of all decides at once.
        let mut new = Standing::default();
        assert!(new.answered(&check, now, wrong()));
        assert!(!new.is_up);
        assert!(new.answered(&check, now, Ok(())), "and the first right one");
        assert!(!new.answered(&check, now, wrong()));
    }

    #[test]
    fn a_backend_that_ends_is_found_out_and_is_found_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let config = Config {
            services: vec![Service {
                name: "web".into(),
                address: "192.0.2.80".parse().unwrap(),
                protocol: 6,
                ports: 80..=80,
                form: Form::Nat,
                by_source: false,
                check: Some(check(1, 1)),
                backends: vec![Backend {
                    address: to.ip(),
                    port: Some(to.port()),
                    weight: 1,
                }],
            }],
        };
        let balance = Balance::new(&config, None);
        let board = balance.board().clone();
        let (_, _, number) = balance.each().next().unwrap();
        let answers = || board.standing(number).last;
        wait("the first answer", || answers().is_some());
        assert!(board.standing(number).is_up);
        assert!(board.changed().is_none());
        drop(listener);
        wait("the failure", || !board.standing(number).is_up);
        wait("the line", || {
            let lines = board.take_lines();
            lines
                .iter()
                .any(|line| line.contains("is down: connection refused"))
        });
        assert!(board.changed().is_some(), "workers get other tables");
        assert!(board.changed().is_none(), "once");
        let again = TcpListener::bind(to).unwrap();
        wait("the recovery", || board.standing(number).is_up);
        drop((again, balance));
        assert!(board.is_over.load(Ordering::Relaxed));
    }
}

//! Which commands of users go to the journal. Every user may add and remove processes of their own, as often as they like: in a loop that would fill the
//! journal's files in an hour, and all older lines would go for it.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_balancer::event::Event;
use numapilot_balancer::event::Loss;
use numapilot_balancer::event::Losses;

/// Time for which commands are counted together.
const SPAN: Duration = Duration::from_secs(3600);
/// Commands of one user in that time that go to the journal.
const OF_ONE: u64 = 200;
/// Commands of all users in that time that go to the journal: about 200 KiB.
const OF_ALL: u64 = 1000;

/// The commands of users within the present span, without those of root and of the daemon's own user.
#[derive(Debug)]
pub(crate) struct GuestLines {
    own_uid: u32,
    begun: Option<Instant>,
    listed: BTreeMap<u32, u64>,
    left_out: u64,
}

impl GuestLines {
    /// None so far. `own_uid`: the daemon's own user.
    pub(crate) fn new(own_uid: u32) -> GuestLines {
        GuestLines { own_uid, begun: None, listed: BTreeMap::new(), left_out: 0 }
    }

    /// Whether an event of this time goes to the journal.
    pub(crate) fn lists(&mut self, event: &Event, now: Instant) -> bool {
        let Event::Steered(steered) = event else { return true };
        let Some(uid) = steered.by_uid.filter(|uid| *uid != 0 && *uid != self.own_uid) else { return true };
        self.begun.get_or_insert(now);
        let own = self.listed.get(&uid).copied().unwrap_or(0);
        if own >= OF_ONE || self.listed.values().sum::<u64>() >= OF_ALL {
            self.left_out += 1;
            return false;
        }
        self.listed.insert(uid, own + 1);
        true
    }

    /// What has been left out, once the span is over (`is_end`: at any time); the next one begins with the next command.
    pub(crate) fn left_out(&mut self, now: Instant, is_end: bool) -> Option<Event> {
        let is_over = self.begun.is_some_and(|begun| now.saturating_duration_since(begun) >= SPAN);
        if !is_over && !is_end {
            return None;
        }
        let count = self.left_out;
        *self = GuestLines::new(self.own_uid);
        let what = format!("lines of commands by users (beyond {OF_ONE} in an hour of one user, {OF_ALL} of all)");
        (count > 0).then(|| Event::Losses(Losses { lost: vec![Loss { what, count }] }))
    }
}

#[cfg(test)]
mod tests {
    use numapilot_balancer::event::Steered;
    use numapilot_balancer::event::Trouble;

    use super::*;

    fn command(by_uid: Option<u32>) -> Event {
        Event::Steered(Steered { command: "add".to_owned(), by_uid, answer: "added".to_owned() })
    }

    /// A user who adds and removes a process in a loop had the journal's files turn until nothing else was in them.
    #[test]
    fn a_user_in_a_loop_does_not_fill_the_journal_and_what_is_left_out_is_told() {
        let (own, user, now) = (500, 1000, Instant::now());
        let mut lines = GuestLines::new(own);
        let count = |lines: &mut GuestLines, event: &Event, times: usize| {
            (0..times).filter(|_| lines.lists(event, now)).count() as u64
        };
        assert_eq!(count(&mut lines, &command(Some(user)), 5000), OF_ONE);
        for master in [command(None), command(Some(0)), command(Some(own)), Event::Trouble(Trouble::default())] {
            assert_eq!(count(&mut lines, &master, 5000), 5000);
        }
        assert_eq!(count(&mut lines, &command(Some(user + 1)), 3), 3, "another user has lines of their own");
        for other in 2..10 {
            count(&mut lines, &command(Some(user + other)), 300);
        }
        assert_eq!(lines.listed.values().sum::<u64>(), OF_ALL);
        assert_eq!(lines.left_out(now + SPAN / 2, false), None);
        let left_out = 4800 + 8 * 300 - (OF_ALL - OF_ONE - 3);
        let Some(Event::Losses(told)) = lines.left_out(now + SPAN, false) else { panic!("nothing is told") };
        assert_eq!((told.lost.len(), told.lost[0].count), (1, left_out));
        assert!(lines.lists(&command(Some(user)), now + SPAN), "a span begins anew");
        assert_eq!(lines.left_out(now + SPAN, true), None, "nothing was left out");
    }
}

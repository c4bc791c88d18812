//! When something that lasts is told again: at once, and then more and more seldom. Pure.

/// Observations between two times that it is told, at most.
const SELDOM: u64 = 300;

/// Reminds of one thing (see the module's documentation).
#[derive(Clone, Copy, Debug, Default)]
pub struct Reminder {
    next: u64,
    gap: u64,
}

impl Reminder {
    /// Whether it is to be told at this observation; if so, the next time comes after twice as many observations as this one, [`SELDOM`] at most.
    pub fn is_due(&mut self, observation: u64) -> bool {
        if observation < self.next {
            return false;
        }
        self.gap = (2 * self.gap).clamp(1, SELDOM);
        self.next = observation + self.gap;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_at_once_and_then_more_and_more_seldom() {
        let mut reminder = Reminder::default();
        let told: Vec<u64> = (7..2000).filter(|observation| reminder.is_due(*observation)).collect();
        assert_eq!(told[..6], [7, 8, 10, 14, 22, 38]);
        assert_eq!(told[told.len() - 1] - told[told.len() - 2], SELDOM);
    }
}

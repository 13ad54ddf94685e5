//! What few connections of a stack have at a time: urgent data, a search for the path's MTU. It
//! lies in an arena beside the connections, each of which has a number, 0 for none.

/// At most so many have it at a time.
pub const FEW: usize = 4096;

/// That of all connections of a stack. What is [`Default`] is nothing, and has no number.
#[derive(Debug, Default)]
pub struct Few<T> {
    all: Vec<T>,
    free: Vec<u16>,
}

impl<T: Copy + Default + PartialEq> Few<T> {
    /// None. All memory is taken now.
    pub fn new() -> Self {
        Self {
            all: Vec::with_capacity(FEW),
            free: Vec::with_capacity(FEW),
        }
    }

    /// What a number stands for.
    #[inline]
    pub fn get(&self, number: u16) -> T {
        let at = usize::from(number).checked_sub(1);
        at.and_then(|at| self.all.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// Sets what a number stands for, which becomes another one where it has to. False, and nothing
    /// is changed, where there are as many as may be: the connection goes on without.
    pub fn set(&mut self, number: &mut u16, value: T) -> bool {
        if value == T::default() {
            if *number != 0 {
                self.free.push(std::mem::take(number));
            }
            return true;
        }
        if *number == 0 {
            let new = match self.free.pop() {
                Some(free) => free,
                None if self.all.len() < FEW => {
                    self.all.push(value);
                    self.all.len() as u16
                }
                None => return false,
            };
            *number = new;
        }
        if let Some(place) = self.all.get_mut(usize::from(*number) - 1) {
            *place = value;
        }
        true
    }

    /// How many connections have some.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_used_and_given_back() {
        let mut few = Few::new();
        let (mut a, mut b) = (0, 0);
        assert!(few.set(&mut a, 0_u32));
        assert_eq!((a, few.len()), (0, 0));
        assert!(few.set(&mut a, 1) && few.set(&mut b, 2));
        assert_ne!(a, b);
        assert_eq!((few.get(a), few.get(b), few.get(0)), (1, 2, 0));
        let before = a;
        assert!(few.set(&mut a, 0));
        assert_eq!((a, few.len()), (0, 1));
        let mut c = 0;
        assert!(few.set(&mut c, 3));
        assert_eq!((c, few.get(c)), (before, 3));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut few = Few::new();
        let mut numbers = vec![0; FEW];
        for number in &mut numbers {
            assert!(few.set(number, 7_u32));
        }
        let mut one_more = 0;
        assert!(!few.set(&mut one_more, 7));
        assert_eq!((one_more, few.len()), (0, FEW));
        assert!(few.set(&mut numbers[3], 0));
        assert!(few.set(&mut one_more, 7));
    }
}

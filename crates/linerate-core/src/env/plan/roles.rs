//! The slots of each role: as written, or chosen where the stanza does not set them.

use super::{PlanSpec, Role};
use crate::env::{CpuList, EnvError};

/// One slot and its role.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) role: Role,
    pub(super) number: u32,
    /// Chosen here, not written by the user: it may go wherever there is room.
    pub(super) chosen: bool,
}

/// The slots of all roles: bg, io, eu, each in the order written.
pub(super) struct Slots {
    pub(super) list: Vec<Slot>,
    pub(super) chosen: Vec<Role>,
}

/// Reads the roles of `spec` and fills in those it leaves out, aiming at `lanes` lcores in all: one
/// background lcore, a quarter of the rest for io, three quarters for eu, and one each at least.
pub(super) fn assign(spec: &PlanSpec, lanes: usize) -> Result<Slots, EnvError> {
    let mut list = written(spec)?;
    let missing: Vec<Role> = Role::ALL
        .into_iter()
        .filter(|&role| spec.role(role).is_none())
        .collect();
    let taken: Vec<u32> = list.iter().map(|slot| slot.number).collect();
    // Slots beyond the lanes are for roles that found none left: they will share a CPU.
    let mut free = (0..).filter(|number| !taken.contains(number));
    let room = (0..lanes as u32)
        .filter(|number| !taken.contains(number))
        .count();
    let busy_room = room.saturating_sub(usize::from(missing.contains(&Role::Bg)));
    let given_eu = list.iter().filter(|slot| slot.role == Role::Eu).count();
    let quarter = ((busy_room + 2) / 4).max(1);
    let wanted = |role| match role {
        Role::Bg => 1,
        Role::Io if missing.contains(&Role::Eu) => quarter,
        Role::Io => (given_eu / 3).min(busy_room),
        Role::Eu if missing.contains(&Role::Io) => busy_room.saturating_sub(quarter),
        Role::Eu => busy_room,
    };
    let mut chosen = Vec::new();
    for &role in &missing {
        let numbers = free.by_ref().take(wanted(role).max(1));
        chosen.extend(numbers.map(|number| Slot {
            role,
            number,
            chosen: true,
        }));
    }
    list.extend(chosen);
    list.sort_by_key(|slot| slot.role);
    Ok(Slots {
        list,
        chosen: missing,
    })
}

fn written(spec: &PlanSpec) -> Result<Vec<Slot>, EnvError> {
    let mut list: Vec<Slot> = Vec::new();
    for role in Role::ALL {
        let Some(text) = spec.role(role) else {
            continue;
        };
        let slots = CpuList::parse(role.name(), text)?;
        if slots.is_empty() {
            return Err(EnvError::Empty { key: role.name() });
        }
        for number in slots.iter() {
            if let Some(other) = list.iter().find(|slot| slot.number == number) {
                let (first, second) = (other.role.name().into(), role.name().into());
                return Err(EnvError::Overlap {
                    slot: number,
                    first,
                    second,
                });
            }
            list.push(Slot {
                role,
                number,
                chosen: false,
            });
        }
    }
    Ok(list)
}

//! What devices are called, and who gets which CPU.

use super::*;

#[test]
fn devices_are_called_by_name_and_the_nearest_is_offered() {
    for (name, kind) in Kind::ALL {
        assert_eq!(name.parse(), Ok(kind));
        assert_eq!(kind.name(), name);
    }
    let error = "brige".parse::<Kind>().unwrap_err();
    assert!(error.contains("did you mean `bridge`"), "{error}");
}

#[test]
fn the_device_has_its_own_cpus_while_there_are_any() {
    let split = |usable: &[u32], cores| {
        let cpus = Cpus::split(usable, cores);
        (cpus.generator.clone(), cpus.device.clone(), cpus.shared())
    };
    assert_eq!(split(&[0, 1], 1), (vec![0], vec![1], false));
    assert_eq!(split(&[3], 1), (vec![3], vec![3], true));
    assert_eq!(split(&[0, 1], 5), (vec![0], vec![1], false));
    assert_eq!(
        split(&[0, 1, 2, 3, 4, 5, 6, 7], 2),
        (vec![0, 1, 2, 3], vec![6, 7], false)
    );
}

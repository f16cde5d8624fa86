from __future__ import annotations

from gateway.routing.memory import Memory


def test_entry_lives_for_its_time_after_it_was_set():
    memory: Memory[str, int] = Memory(10, 5.0)
    memory.set("a", 1, 0)
    assert (memory.get("a", 4.9), memory.get("a", 5.0)) == (1, None)
    memory.set("a", 2, 4)
    assert memory.get("a", 8.9) == 2


def test_memory_is_bounded_and_the_oldest_go_first():
    memory: Memory[int, int] = Memory(3, 100.0)
    for number in range(5):
        memory.set(number, number, number)
    memory.set(2, 20, 5)
    memory.set(9, 9, 6)
    assert len(memory) == 3
    assert [memory.get(number, 6) for number in (0, 1, 2, 3, 4, 9)] == [None, None, 20, None, 4, 9]


def test_forgotten_entry_is_gone():
    memory: Memory[str, int] = Memory(3, 100.0)
    memory.set("a", 1, 0)
    memory.forget("a")
    memory.forget("b")
    assert memory.get("a", 0) is None

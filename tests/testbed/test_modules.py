from testbed.modules import render

UPSTREAM = {
    "Go": "1.25.0",
    "Replace": [{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}}],
}


def test_kubernetes_own_parts_come_from_their_published_releases() -> None:
    assert "\tk8s.io/api => k8s.io/api v0.35.4\n" in render("1.35.4", UPSTREAM)


def test_the_module_asks_for_the_go_that_kubernetes_asks_for() -> None:
    assert "\ngo 1.25.0\n" in render("1.35.4", UPSTREAM)

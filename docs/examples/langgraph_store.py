from typing import TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

from memorygw.adapters.langgraph import MemorygwStore


class State(TypedDict):
    user_id: str
    city: str
    known: list[str]


def remember(state: State, runtime: Runtime) -> dict:
    namespace = ("memories", state["user_id"])
    runtime.store.put(namespace, "home", {"text": f"Lives in {state['city']}"})
    return {"known": [item.value["text"] for item in runtime.store.search(namespace, query="Where do they live?")]}


graph = StateGraph(State).add_node(remember).add_edge(START, "remember").compile(store=MemorygwStore())
print(graph.invoke({"user_id": "user-42", "city": "Mumbai"})["known"])

"""Every sentence of the page's own, in Chinese and in English."""

from dataclasses import dataclass

from chat_ui.errors import ChatError
from chat_ui.presentation import show_inline


@dataclass(frozen=True, slots=True)
class StarterText:
    """A question to begin with: what the button says, what is asked, which icon it wears."""

    label: str
    message: str
    icon: str


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences of one language. Fields in braces are filled in by `explain` and by the page."""

    unreachable: str
    not_ready: str
    busy: str
    rate_limited: str
    refused: str
    too_long_for_model: str
    upstream_failed: str
    timed_out: str
    cut: str
    internal: str
    wait_seconds: str
    request_id: str
    message_too_long: str
    not_kept: str
    expired: str
    note_stopped: str
    note_stopped_empty: str
    note_incomplete: str
    note_length: str
    note_empty: str
    note_dropped: str
    retry: str
    regenerate: str
    model: str
    starters: tuple[StarterText, ...]


CHINESE = Texts(
    unreachable="无法连接模型服务。它可能正在启动或已停止，请稍后重试；若一直如此，请联系管理员。",
    not_ready="模型正在加载或重启，暂时不能回答。",
    busy="现在提问的人太多，队列已满。",
    rate_limited="提问太频繁了。",
    refused="请求被拒绝：{detail}",
    too_long_for_model="这条消息超出了模型的上下文长度，请缩短后再发。",
    upstream_failed="模型服务出错，没有给出回答。",
    timed_out="等待回答超时。",
    cut="回答在中途断开，模型或网络可能出了问题。",
    internal="页面内部出错，回答没有完成。错误已记入日志。",
    wait_seconds="请在 {seconds} 秒后重试。",
    request_id="请求编号：`{request_id}`",
    message_too_long="消息过长：共 {length} 个字符，最多 {limit} 个。请缩短后再发。",
    not_kept="对话暂时无法保存：可以继续聊天，但刷新或关闭页面后，这些内容可能找不回来。",
    expired="这段对话已在服务器上过期，请新建对话。",
    note_stopped="已停止，以上是未完成的回答。",
    note_stopped_empty="已停止，还没有生成内容。",
    note_incomplete="以上回答不完整。",
    note_length="已达到长度上限，回答可能没有写完。",
    note_empty="模型没有给出任何内容，可以重试或换个问法。",
    note_dropped="对话较长，从现在起较早的内容（{count} 轮）不再发送给模型。",
    retry="重试",
    regenerate="重新生成",
    model="模型",
    starters=(
        StarterText("你是谁？", "你是谁？", "/public/icons/person.svg"),
        StarterText("写一首诗", "写一首诗。", "/public/icons/feather.svg"),
        StarterText("讲个笑话", "讲个笑话。", "/public/icons/smile.svg"),
        StarterText("润色一句话", "把这句话改得更礼貌：你怎么还没交报告？", "/public/icons/pen.svg"),
        StarterText("翻译成英文", "翻译成英文：今天天气很好，我们去公园散步吧。", "/public/icons/languages.svg"),
        StarterText("写一段代码", "用 Python 写一个排序函数。", "/public/icons/code.svg"),
    ),
)

ENGLISH = Texts(
    unreachable=(
        "The model service cannot be reached. It may be starting or stopped: try again in a moment, "
        "and tell the operator if it stays so."
    ),
    not_ready="The model is loading or restarting and cannot answer yet.",
    busy="Too many people are asking right now and the queue is full.",
    rate_limited="You are asking too fast.",
    refused="The request was refused: {detail}",
    too_long_for_model="This message does not fit the model's context. Shorten it and send it again.",
    upstream_failed="The model service failed and gave no answer.",
    timed_out="The answer did not come in time.",
    cut="The answer broke off: the model or the network may have failed.",
    internal="The page failed and the answer is not complete. The error is in the log.",
    wait_seconds=" Try again in {seconds} s.",
    request_id="Request id: `{request_id}`",
    message_too_long="The message is too long: {length} characters, at most {limit}. Shorten it and send it again.",
    not_kept="What you say now cannot be kept: go on, but it may be gone after a reload.",
    expired="This conversation has expired on the server. Start a new chat.",
    note_stopped="Stopped: the answer above is not complete.",
    note_stopped_empty="Stopped before the first word.",
    note_incomplete="The answer above is not complete. ",
    note_length="The length limit was reached: the answer may be cut short.",
    note_empty="The model gave no text. Try again, or ask in another way.",
    note_dropped="A long conversation: from now on its oldest turns ({count}) are no longer sent to the model.",
    retry="Retry",
    regenerate="Regenerate",
    model="Model",
    starters=(
        StarterText("Who are you?", "Who are you?", "/public/icons/person.svg"),
        StarterText("Write a poem", "Write a poem.", "/public/icons/feather.svg"),
        StarterText("Tell a joke", "Tell me a joke.", "/public/icons/smile.svg"),
        StarterText("Make it polite", "Make this sentence polite: Where is the report?", "/public/icons/pen.svg"),
        StarterText(
            "Translate to Chinese",
            "Translate into Chinese: The weather is lovely today, let us take a walk.",
            "/public/icons/languages.svg",
        ),
        StarterText("Write some code", "Write a Python function that sorts a list.", "/public/icons/code.svg"),
    ),
)


def texts_for(language: str | None) -> Texts:
    """Return Chinese for any kind of Chinese, English for the rest."""
    return CHINESE if (language or "").lower().split("-")[0] == "zh" else ENGLISH


def explain(error: Exception, texts: Texts) -> str:
    """Say in Markdown what happened and what to do, with the id that finds the line in the logs."""
    if not isinstance(error, ChatError):
        return texts.internal
    sentence: str = getattr(texts, error.text)
    sentence = sentence.format(detail=show_inline(error.detail))
    if error.retry_after_seconds:
        sentence += texts.wait_seconds.format(seconds=error.retry_after_seconds)
    if error.request_id:
        sentence += "\n\n" + texts.request_id.format(request_id=error.request_id)
    return sentence

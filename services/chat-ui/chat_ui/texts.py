"""Every sentence of the page's own, in Chinese and in English."""

from collections.abc import Mapping
from dataclasses import dataclass

from chat_ui.errors import ChatError
from chat_ui.presentation import show_inline
from chat_ui.sampling import PresetName


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences of one language. Fields in braces are filled in where they are shown."""

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
    unanswered: str
    expired: str
    note_stopped: str
    note_stopped_empty: str
    note_incomplete: str
    note_length: str
    note_empty: str
    note_dropped: str
    retry: str
    regenerate: str
    go_on: str
    go_on_prompt: str
    model: str
    retry_now: str
    retry_soon: str
    waiting_place: str
    waiting_next: str
    waiting_seconds: str
    waiting_soon: str
    waiting_kept: str
    engine_away: str
    engine_stage: str
    engine_seconds: str
    engine_unreached: str
    engine_ready: str
    settings_saved: str
    system_prompt: str
    system_prompt_hint: str
    system_prompt_too_long: str
    preset: str
    preset_hint: str
    temperature: str
    temperature_hint: str
    top_p: str
    top_p_hint: str
    repetition_penalty: str
    repetition_penalty_hint: str
    max_tokens: str
    max_tokens_hint: str
    show_figures: str
    figure_start: str
    figure_speed: str
    figure_tokens: str
    figures_start: str
    figures_speed: str
    figures_tokens: str
    between_sentences: str
    presets: Mapping[PresetName, str]
    stages: Mapping[str, str]


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
    unanswered="这个问题没有收到回答。",
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
    go_on="继续写",
    go_on_prompt="请从中断的地方接着写，不要重复已经写过的内容。",
    model="模型",
    retry_now="现在可以重试了。",
    retry_soon="{seconds} 秒后自动重试…",
    waiting_place="排队中：前面还有 {ahead} 个提问",
    waiting_next="排队中：下一个就轮到您",
    waiting_seconds="，大约还需 {seconds} 秒",
    waiting_soon="，马上就好",
    waiting_kept="您的问题已收到，模型就绪后会自动回答。",
    engine_away="模型还没有就绪",
    engine_stage="模型启动中：{stage}",
    engine_seconds="，大约还需 {seconds} 秒",
    engine_unreached="暂时连不上模型服务，正在重新连接",
    engine_ready="模型已就绪",
    settings_saved="设置已保存，从下一个问题起生效。",
    system_prompt="系统提示词",
    system_prompt_hint="例如：你是一位耐心的语文老师，回答要简短。",
    system_prompt_too_long="系统提示词过长：共 {length} 个字符，最多 {limit} 个。已保留原来的内容。",
    preset="风格",
    preset_hint="「模型自带」不发送下面三项，由模型自己的默认值决定；移动滑块即为「自定义」。",
    temperature="温度",
    temperature_hint="越高越有变化，0 表示每次都选最可能的词。",
    top_p="Top-p",
    top_p_hint="只从概率之和达到这个值的词里选，越低越稳妥。",
    repetition_penalty="重复惩罚",
    repetition_penalty_hint="大于 1 会减少重复；太高会让句子不通顺。",
    max_tokens="最长回答（词元）",
    max_tokens_hint="一个词元大约是一个汉字或四个英文字母。",
    show_figures="在回答下显示速度和用量",
    figure_start="首字 {seconds:.2f} 秒",
    figure_speed="每秒 {speed:.1f} 词元",
    figure_tokens="共 {tokens} 词元",
    figures_start="第一个词在 {seconds:.2f} 秒后出现。",
    figures_speed="之后每秒生成 {speed:.1f} 个词元。",
    figures_tokens="提示用了 {prompt} 个词元，回答用了 {answer} 个。",
    between_sentences="",
    presets={"model": "模型自带", "precise": "精确", "balanced": "均衡", "creative": "创意", "custom": "自定义"},
    stages={
        "checking": "检查模型文件",
        "downloading": "下载模型",
        "waiting": "等待前一个引擎启动",
        "starting": "启动引擎",
        "loading": "加载模型",
        "compiling": "编译",
        "capturing": "准备显卡",
        "warming": "预热",
        "serving": "即将就绪",
    },
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
    unanswered="This question got no answer.",
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
    go_on="Continue",
    go_on_prompt="Go on exactly where you stopped. Do not repeat what is written already.",
    model="Model",
    retry_now="You can retry now.",
    retry_soon="Trying again in {seconds} s...",
    waiting_place="In the queue: {ahead} before yours",
    waiting_next="In the queue: yours is next",
    waiting_seconds=", about {seconds} s left",
    waiting_soon=", any moment now",
    waiting_kept="Your question is kept and will be answered as soon as the model is ready.",
    engine_away="The model is not ready yet",
    engine_stage="The model is starting: {stage}",
    engine_seconds=", about {seconds} s left",
    engine_unreached="The model service cannot be reached, trying again",
    engine_ready="The model is ready",
    settings_saved="Saved: the next question uses these settings.",
    system_prompt="System prompt",
    system_prompt_hint="For example: You are a patient teacher. Keep your answers short.",
    system_prompt_too_long="The system prompt is too long: {length} characters, at most {limit}. The old one stays.",
    preset="Style",
    preset_hint="With the model's own values the next three are not sent. Moving a slider makes it custom.",
    temperature="Temperature",
    temperature_hint="Higher is more varied; 0 always takes the most likely word.",
    top_p="Top p",
    top_p_hint="Choose only among the words that make up this share of the probability; lower is safer.",
    repetition_penalty="Repetition penalty",
    repetition_penalty_hint="Above 1 there is less repetition; far above it sentences break.",
    max_tokens="Longest answer (tokens)",
    max_tokens_hint="A token is about four letters, or one Chinese character.",
    show_figures="Show speed and tokens under answers",
    figure_start="first word {seconds:.2f} s",
    figure_speed="{speed:.1f} tokens/s",
    figure_tokens="{tokens} tokens",
    figures_start="The first word came after {seconds:.2f} s.",
    figures_speed="The rest came at {speed:.1f} tokens a second.",
    figures_tokens="The prompt took {prompt} tokens, the answer {answer}.",
    between_sentences=" ",
    presets={
        "model": "The model's own",
        "precise": "Precise",
        "balanced": "Balanced",
        "creative": "Creative",
        "custom": "Custom",
    },
    stages={
        "checking": "checking its files",
        "downloading": "downloading it",
        "waiting": "waiting for the engine before it",
        "starting": "starting the engine",
        "loading": "loading it",
        "compiling": "compiling",
        "capturing": "preparing the graphics card",
        "warming": "warming up",
        "serving": "almost ready",
    },
)


def texts_for(language: str | None) -> Texts:
    """Return Chinese for any kind of Chinese, English for the rest."""
    return CHINESE if (language or "").lower().split("-")[0] == "zh" else ENGLISH


def explain(error: Exception, texts: Texts, seconds_left: int | None = None) -> str:
    """Say in Markdown what happened and what to do, with the id that finds the line in the logs.

    `seconds_left` is what is left of the time to wait, where that runs on the page.
    """
    if not isinstance(error, ChatError):
        return texts.internal
    sentence: str = getattr(texts, error.text)
    sentence = sentence.format(detail=show_inline(error.detail))
    seconds = error.retry_after_seconds if seconds_left is None else seconds_left
    if seconds:
        sentence += texts.wait_seconds.format(seconds=seconds)
    elif error.retry_after_seconds:
        sentence += texts.between_sentences + texts.retry_now
    if error.request_id:
        sentence += "\n\n" + texts.request_id.format(request_id=error.request_id)
    return sentence
